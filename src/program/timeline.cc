#include "program/timeline.h"

namespace weft::program {

bool IsTransfer(OpKind kind) {
    return RowOf(kind).Is(Trait::kTransfer);
}

bool RunsBeside(OpKind kind) {
    return RowOf(kind).Is(Trait::kBeside);
}

}  // namespace weft::program
