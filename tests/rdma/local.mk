SHELL_TESTS += tests/rdma/rdma.t
EXTRA_DIST += tests/rdma/cluster tests/rdma/guests.sh tests/rdma/init tests/rdma/guest
