// libFuzzer target: any bytes as an importance matrix, in either format. Accepted values must be
// positive and finite.
//     build-fuzz/fuzz/imatrix_fuzz -max_total_time=60 -malloc_limit_mb=64 fuzz/corpus/imatrix
#include <cmath>
#include <cstdlib>
#include <string>

#include "quantize/importance.h"
#include "support/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static weft::support::MemoryFile file;
    const auto importance = weft::quantize::Importance::Read(file.Write(data, size));
    if (!importance.ok()) return 0;
    for (const std::string name : {"blk.0.attn_q.weight", "t", "output.weight"}) {
        const std::vector<float>* values = importance->Find(name);
        if (values == nullptr) continue;
        if (values->empty()) std::abort();
        for (const float value : *values) {
            if (!(value > 0) || !std::isfinite(value)) std::abort();
        }
    }
    return 0;
}
