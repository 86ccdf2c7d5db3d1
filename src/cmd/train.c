#include "src/cmd/cmd.h"

#include "src/train/model.h"
#include "src/train/trainer.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(name) offsetof(struct gn_train_options, name)

static const struct gn_option options[] = {
	{.name = "data", .kind = GN_OPTION_TEXT, .offset = FIELD(data), .value_name = "DIR", .required = 1,
	 .help = "dataset to train on, as gannet pack wrote it"},
	{.name = "val", .kind = GN_OPTION_TEXT, .offset = FIELD(val), .value_name = "DIR",
	 .help = "dataset to evaluate on; without it nothing is evaluated"},
	{.name = "model", .kind = GN_OPTION_CHOICE, .offset = FIELD(model), .value_name = "NAME", .required = 1,
	 .choices = gn_model_names, .help = "network"},
	{.name = "epochs", .kind = GN_OPTION_INT, .offset = FIELD(epochs), .value_name = "N", .initial = "10", .min = 1,
	 .max = 1e6, .help = "passes over the data"},
	{.name = "steps", .kind = GN_OPTION_INT, .offset = FIELD(steps), .value_name = "N", .initial = "0", .min = 0,
	 .max = 1e12, .help = "updates in all, instead of --epochs; 0 counts epochs"},
	{.name = "batch", .letter = 'b', .kind = GN_OPTION_INT, .offset = FIELD(batch), .value_name = "N",
	 .initial = "64", .min = 1, .max = 65536, .help = "images per rank and step"},
	{.name = "side", .kind = GN_OPTION_INT, .offset = FIELD(side), .value_name = "N", .initial = "0", .min = 0,
	 .max = 4096, .help = "side of the images in pixels; 0: the network's own (28, 32, 224)"},
	{.name = "channels", .kind = GN_OPTION_INT, .offset = FIELD(channels), .value_name = "N", .initial = "0",
	 .min = 0, .max = 3, .help = "1 grey, 3 colour; 0: the network's own"},
	{.name = "lr", .kind = GN_OPTION_REAL, .offset = FIELD(lr), .value_name = "X", .initial = "0.1", .min = 0,
	 .max = 1e6, .help = "learning rate"},
	{.name = "lr-batch", .kind = GN_OPTION_REAL, .offset = FIELD(lr_batch), .value_name = "N", .initial = "0",
	 .min = 0, .max = 1e9, .help = "linear scaling: --lr is meant for a global batch of N; 0: no scaling"},
	{.name = "schedule", .kind = GN_OPTION_CHOICE, .offset = FIELD(schedule), .value_name = "NAME",
	 .initial = "cosine", .choices = "constant|step|cosine|polynomial", .help = "how the rate goes after warm-up"},
	{.name = "warmup-epochs", .kind = GN_OPTION_REAL, .offset = FIELD(warmup_epochs), .value_name = "X",
	 .initial = "0", .min = 0, .max = 1e6, .help = "epochs of linear warm-up"},
	{.name = "lr-start", .kind = GN_OPTION_REAL, .offset = FIELD(lr_start), .value_name = "X", .initial = "-1",
	 .min = -1, .max = 1e6,
	 .help = "the rate that warm-up begins with; -1: --lr where scaling raised the rate, else an eighth of it"},
	{.name = "milestones", .kind = GN_OPTION_TEXT, .offset = FIELD(milestones), .value_name = "E,E,...",
	 .initial = "30,60,80", .help = "epochs at which the step schedule lowers the rate"},
	{.name = "lr-factor", .kind = GN_OPTION_REAL, .offset = FIELD(lr_factor), .value_name = "X", .initial = "0.1",
	 .min = 0, .max = 1, .help = "step schedule: the factor"},
	{.name = "lr-final", .kind = GN_OPTION_REAL, .offset = FIELD(final_lr), .value_name = "X", .initial = "0",
	 .min = 0, .max = 1e6, .help = "cosine and polynomial: the rate at the end"},
	{.name = "lr-power", .kind = GN_OPTION_REAL, .offset = FIELD(lr_power), .value_name = "X", .initial = "2",
	 .min = 0, .max = 100, .help = "polynomial: the power"},
	{.name = "optimizer", .kind = GN_OPTION_CHOICE, .offset = FIELD(optimizer), .value_name = "NAME",
	 .initial = "sgd", .choices = "sgd|lars|lamb",
	 .help = "sgd; lars (You, Gitman and Ginsburg 2017) and lamb (You et al. 2020) for large batches"},
	{.name = "momentum", .kind = GN_OPTION_REAL, .offset = FIELD(momentum), .value_name = "X", .initial = "0.9",
	 .min = 0, .max = 1, .help = "momentum of sgd and lars, beta 1 of lamb"},
	{.name = "nesterov", .kind = GN_OPTION_FLAG, .offset = FIELD(nesterov), .help = "Nesterov's momentum, sgd and lars"},
	{.name = "beta2", .kind = GN_OPTION_REAL, .offset = FIELD(beta2), .value_name = "X", .initial = "0.999",
	 .min = 0, .max = 1, .help = "lamb: how slowly the second moment changes"},
	{.name = "eps", .kind = GN_OPTION_REAL, .offset = FIELD(eps), .value_name = "X", .initial = "-1", .min = -1,
	 .max = 1, .help = "added to what lars and lamb divide by; -1: 0 for lars, 1e-6 for lamb"},
	{.name = "trust", .kind = GN_OPTION_REAL, .offset = FIELD(trust), .value_name = "X", .initial = "0.001",
	 .min = 0, .max = 1e6, .help = "lars: the trust coefficient"},
	{.name = "clip", .kind = GN_OPTION_REAL, .offset = FIELD(clip), .value_name = "X", .initial = "0", .min = 0,
	 .max = 1e9, .help = "scale the whole gradient down to this norm where it is longer; 0: never"},
	{.name = "accumulate", .kind = GN_OPTION_INT, .offset = FIELD(accumulate), .value_name = "N", .initial = "1",
	 .min = 1, .max = 65536,
	 .help = "batches per rank and step, whose gradients are averaged: larger steps in the same memory"},
	{.name = "ema", .kind = GN_OPTION_REAL, .offset = FIELD(ema), .value_name = "X", .initial = "0", .min = 0,
	 .max = 0.999999,
	 .help = "keep a moving average of the weights that decays by X a step (0.9999), evaluate it too, and save it for "
		 "eval --ema and export --ema; 0: none"},
	{.name = "zero-gamma", .kind = GN_OPTION_FLAG, .offset = FIELD(zero_gamma),
	 .help = "begin with 0 in the batch norm that ends each residual block (Goyal et al. 2017, sec. 5.1)"},
	{.name = "weight-decay", .kind = GN_OPTION_REAL, .offset = FIELD(weight_decay), .value_name = "X",
	 .initial = "1e-4", .min = 0, .max = 1, .help = "weight decay"},
	{.name = "decay-all", .kind = GN_OPTION_FLAG, .offset = FIELD(decay_all), .initial = "0",
	 .help = "weight decay also on biases and batch norm"},
	{.name = "label-smoothing", .kind = GN_OPTION_REAL, .offset = FIELD(label_smoothing), .value_name = "X",
	 .initial = "0", .min = 0, .max = 0.999, .help = "label smoothing"},
	{.name = "dropout", .kind = GN_OPTION_FLAG, .offset = FIELD(dropout), .initial = "1",
	 .help = "dropout, in networks that have it"},
	{.name = "augment", .kind = GN_OPTION_CHOICE, .offset = FIELD(augment), .value_name = "NAME", .initial = "auto",
	 .choices = "auto|none|crop-flip|shift|shift-flip",
	 .help = "augmentation; auto is crop-flip for sides of 64 and more, else shift"},
	{.name = "pad", .kind = GN_OPTION_INT, .offset = FIELD(pad), .value_name = "N", .initial = "-1", .min = -1,
	 .max = 1024, .help = "shift: how far, in pixels; -1: a fourteenth of the side"},
	{.name = "resize", .kind = GN_OPTION_INT, .offset = FIELD(resize_shorter), .value_name = "N", .initial = "-1",
	 .min = -1, .max = 8192, .help = "evaluation: shorter side before the centre crop; -1: 8/7 of the side"},
	{.name = "mean", .kind = GN_OPTION_TEXT, .offset = FIELD(mean), .value_name = "X[,X,X]",
	 .help = "mean of pixels in 0..1 (default: ImageNet's for colour, 0.5 for grey)"},
	{.name = "deviation", .kind = GN_OPTION_TEXT, .offset = FIELD(deviation), .value_name = "X[,X,X]",
	 .help = "standard deviation of pixels (default: ImageNet's for colour, 0.5 for grey)"},
	{.name = "init", .kind = GN_OPTION_TEXT, .offset = FIELD(init), .value_name = "HOW",
	 .help = "PATH of a safetensors file, formula, or seed:N (default seed: and the value of --seed)"},
	{.name = "seed", .kind = GN_OPTION_INT, .offset = FIELD(seed), .value_name = "N", .initial = "1", .min = 0,
	 .max = 9e15, .help = "order of samples, augmentation, initial weights"},
	{.name = "checkpoint", .kind = GN_OPTION_TEXT, .offset = FIELD(checkpoint), .value_name = "DIR",
	 .help = "where checkpoints go, at the end of each epoch and on a signal"},
	{.name = "checkpoint-every", .kind = GN_OPTION_INT, .offset = FIELD(checkpoint_every), .value_name = "N",
	 .initial = "0", .min = 0, .max = 1e12, .help = "also every N steps"},
	{.name = "keep", .kind = GN_OPTION_INT, .offset = FIELD(keep), .value_name = "N", .initial = "3", .min = 1,
	 .max = 1e6, .help = "how many checkpoints to keep"},
	{.name = "resume", .kind = GN_OPTION_TEXT, .offset = FIELD(resume), .value_name = "auto|PATH|none",
	 .initial = "none", .help = "auto: the newest whole one in --checkpoint, or from the start when there is none"},
	{.name = "log", .kind = GN_OPTION_TEXT, .offset = FIELD(log), .value_name = "FILE.jsonl",
	 .help = "append one JSON line per interval, evaluation and checkpoint; - is standard output"},
	{.name = "log-every", .kind = GN_OPTION_INT, .offset = FIELD(log_every), .value_name = "N", .initial = "20",
	 .min = 1, .max = 1e9, .help = "steps per line"},
	{.name = "eval-every", .kind = GN_OPTION_INT, .offset = FIELD(eval_every), .value_name = "N", .initial = "1",
	 .min = 1, .max = 1e6, .help = "epochs between evaluations"},
	{.name = "device", .kind = GN_OPTION_CHOICE, .offset = FIELD(device), .value_name = "NAME", .initial = "host",
	 .choices = "host|ref", .help = "host: oneDNN; ref: the plain-C oracle, slow"},
	{.name = "transport", .kind = GN_OPTION_CHOICE, .offset = FIELD(transport), .value_name = "NAME",
	 .initial = "auto", .choices = "auto|tcp|shm|rc|ud", .help = "what may carry gradients (sets UCX_TLS)"},
	{.name = "algo", .kind = GN_OPTION_CHOICE, .offset = FIELD(algo), .value_name = "NAME", .initial = "auto",
	 .choices = "auto|shared|ring|recursive-doubling|halving-doubling|double-tree|hierarchical|hierarchical-ring", .help = "allreduce algorithm"},
	{.name = "tuning", .kind = GN_OPTION_TEXT, .offset = FIELD(tuning), .value_name = "FILE",
	 .help = "what gannet tune measured; none: guess (default: where gannet tune keeps it)"},
	{.name = "threads", .kind = GN_OPTION_INT, .offset = FIELD(threads), .value_name = "N", .initial = "0", .min = 0,
	 .max = 4096, .help = "compute threads per rank; 0: its share of the processors it may use"},
	{.name = "loader-threads", .kind = GN_OPTION_INT, .offset = FIELD(loader_threads), .value_name = "N",
	 .initial = "2", .min = 1, .max = 1024, .help = "threads per rank that read and decode"},
	{.name = "prefetch", .kind = GN_OPTION_SIZE, .offset = FIELD(prefetch), .value_name = "BYTES", .initial = "256M",
	 .min = 0, .max = 1e13, .help = "memory for batches read ahead; two batches are always kept"},
	{.name = "bucket", .kind = GN_OPTION_SIZE, .offset = FIELD(bucket), .value_name = "BYTES", .initial = "16M",
	 .min = 0, .max = 1e13, .help = "gradients are summed in pieces of at least this size"},
};

static const struct gn_command command = {
	.name = "train",
	.summary = "train a classifier, alone or on all ranks of a job",
	.positional = "",
	.description =
		"Data-parallel training. Started by srun --mpi=pmix, mpirun or gannet launch, all tasks form one run; started by "
		"itself it is a run of one rank. Every rank reads its share of each batch from --data, gradients are summed "
		"over UCX, all ranks hold the same parameters after every step.\n\n"
		"SIGTERM and SIGUSR1 end the run after the next step, with a checkpoint, and exit code 5: start it again with "
		"--resume auto. When a rank dies the others end with exit code 4 and name it.\n\n"
		"A step whose gradients are not finite updates nothing on any rank and is counted in the log; ten in a row end "
		"the run.\n\n"
		"The log has one JSON object a line; time_ms tells where the mean step of the interval went on rank 0. gannet "
		"report draws it.",
	.examples = "  gannet train --data train --val val --model lenet --epochs 10 --lr 0.05\n"
		    "  srun --mpi=pmix gannet train --data /local/train --model resnet50 --batch 64 --lr 0.1 --lr-batch 256 \\\n"
		    "      --warmup-epochs 5 --checkpoint /shared/run1 --resume auto --log /shared/run1.jsonl\n",
	.options = options,
	.option_count = sizeof options / sizeof *options,
};

/* Set by the signal thread, read by the trainer between steps. */
static volatile sig_atomic_t stop_requested;

static void stop_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGUSR1);
}

static void *await_stop(void *unused)
{
	sigset_t set;
	int number;

	stop_signals(&set);
	while (!sigwait(&set, &number))
		stop_requested = 1;
	return unused;
}

/* No handler: oneDNN's generated matrix code keeps data addresses in the stack pointer, and the frame that the kernel pushes
 * for a handler would land in the middle of the heap. All threads block these signals, and one that computes nothing takes
 * them. To be called before any other thread starts. */
static enum gn_status catch_signals(struct gn_err *err)
{
	pthread_t id;
	sigset_t set;

	stop_signals(&set);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL) || pthread_create(&id, NULL, await_stop, NULL))
		return gn_err_set(err, GN_ERR_FAILED, "cannot start a thread for signals (see ulimit -u)");
	pthread_detach(id);
	return GN_OK;
}

/* Options that ranks may have of their own: where to write, and how many threads. Paths of the data differ from node to node,
 * too: what is in them is compared instead. */
static const char *const own_options[] = {"data", "val", "checkpoint", "log", "threads", "loader-threads", "prefetch",
					  "init", "tuning", NULL};

/* *told: the error is known to all ranks and rank 0 speaks for them. */
static enum gn_status train_in_world(const struct gn_train_options *o, struct gn_world *world, struct gn_log *log,
				     int *told, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = o->transport, .tuning = o->tuning};
	struct gn_strbuf text;
	struct gn_comm *comm;
	int agreed = 0;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_strbuf_init(&text);
	gn_options_describe(&command, o, own_options, &text);
	if (gn_strbuf_failed(&text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the options");
	else
		status = gn_train_run(o, gn_strbuf_text(&text), &stop_requested, comm, log, &agreed, err);
	*told = agreed && gn_comm_rank(comm) > 0;
	gn_strbuf_release(&text);
	gn_comm_destroy(comm);
	return status;
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_world_options world_options = {0};
	struct gn_log *log = gn_cmd_log();
	struct gn_world *world;
	struct gn_err err;
	enum gn_status status = catch_signals(&err);
	int told = 0;

	(void)positional;
	if (!status)
		status = gn_world_create(&world_options, log, &world, &err);
	if (!status) {
		status = train_in_world(target, world, log, &told, &err);
		gn_world_destroy(world);
	}
	if (status && !told)
		gn_log_line(log, status == GN_ERR_STOPPED ? GN_LOG_WARN : GN_LOG_ERROR, "train: %s", err.text);
	gn_log_destroy(log);
	return gn_cmd_exit_code(status);
}

const struct gn_cmd gn_cmd_train = {&command, run, sizeof(struct gn_train_options)};
