#include "kernels/amx/table.h"

namespace weft::kernels::amx {

Kernels Table() {
    Kernels table = avx512::Table();
    table.level = CpuLevel::kAmx;
    table.matmul = MatMul;
    SetGemm(table);
    SetCausal(table);
    return table;
}

}  // namespace weft::kernels::amx
