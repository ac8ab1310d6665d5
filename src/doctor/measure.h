// Measures a transport between two threads of this process: one-way times of a ping-pong and an
// all-reduce, over the links and collectives that models use.
#pragma once

#include <string>

#include "base/result.h"
#include "net/fabric.h"

namespace weft::doctor {

// Lines "OP SIZE P50_US P99_US"; OP is "one_way" or "all_reduce", SIZE in bytes. Takes a third of a
// second on two cores. Errors: those of links and collectives.
Result<std::string> MeasureLocal(net::Transport transport);

}  // namespace weft::doctor
