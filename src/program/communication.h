// Traits of ops that move values between ranks.
#pragma once

#include "program/program.h"

namespace weft::program {

bool IsCommunication(OpKind kind);
// Whether a backend may run the op beside arithmetic: zero_all_gather and zero_reduce_scatter.
bool MayOverlap(OpKind kind);

}  // namespace weft::program
