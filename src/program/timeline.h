// Traits of ops that move values between ranks.
#pragma once

#include "program/program.h"

namespace weft::program {

// Whether an op is communication.
bool IsTransfer(OpKind kind);
// Whether a backend may run the op beside arithmetic: gather_shares and reduce_shares.
bool RunsBeside(OpKind kind);

}  // namespace weft::program
