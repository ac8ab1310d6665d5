#include "formats/hf/packed.h"

namespace weft::formats::hf {

Result<MatrixPtr> PackedLinear(const LinearParts&, const Quantization&, const TensorFiles&,
                               const std::string& module, const std::string& folder) {
    return MakeError(ErrorCode::kUnsupported, "{}: '{}' is quantized", folder, module);
}

}  // namespace weft::formats::hf
