SHELL_TESTS += tests/rdma/rdma.t
EXTRA_DIST += tests/rdma/lab tests/rdma/init tests/rdma/guest
