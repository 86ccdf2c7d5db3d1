#include "tests/ncclnet/lab.h"
const struct lab_check checks_hard[] = {{0}};
