#include "program/communication.h"

namespace weft::program {

bool IsCommunication(OpKind kind) {
    return RowOf(kind).Is(Trait::kTransfer);
}

bool MayOverlap(OpKind kind) {
    return RowOf(kind).Is(Trait::kBeside);
}

}  // namespace weft::program
