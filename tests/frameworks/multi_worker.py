"""TensorFlow MultiWorkerMirroredStrategy: a sum over all workers, and a variable that is the same on all. usage: multi_worker.py RANKS"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
count = strategy.num_replicas_in_sync
assert count == int(sys.argv[1]), f"{count} replicas"
worker = strategy.cluster_resolver.task_id
with strategy.scope():
    v = tf.Variable(1.0)


@tf.function
def step():
    def replica():
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(float(worker + 1)) * v)
    return strategy.run(replica)


got = float(step())
assert got == count * (count + 1) / 2, got
if worker == 0:
    print(f"right: {count} ranks, tensorflow {tf.__version__}", flush=True)
