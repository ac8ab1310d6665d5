// Messages between this machine and workers: measured and judged in doctor/fabric.h.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {

const Check kAcrossMeasured = {
    .name = "across-measured",
    .what =
        "Latency and bandwidth of every link, against what its kind and the card should give "
        "(with --workers).",
    .reads = "its own measurement between this machine and `weft worker` on the others",
    .why = "A token waits for the slowest link: twice the latency, half the speed.",
};

}  // namespace weft::doctor::checks
