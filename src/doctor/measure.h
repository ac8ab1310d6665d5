// Measures a transport between two threads of this process: one-way times of a ping-pong and an
// all-reduce, over the same links and collectives that a model uses.
#pragma once

#include <string>

#include "base/result.h"
#include "net/fabric.h"

namespace weft::doctor {

// Lines "OP SIZE P50_US P99_US", OP being "one_way" or "all_reduce", SIZE in bytes. Takes about a
// third of a second and uses two cores for it. Errors: as links and collectives have them.
Result<std::string> MeasureLocal(net::Transport transport);

}  // namespace weft::doctor
