#define WEFT_ENCODE_LEVEL avx512
#include "tensor/encode/rows.h"

namespace weft::encode {

const Level kAvx512Level = {avx512::EncodeRows, avx512::HalvesToFloats, avx512::JoinParts};

}  // namespace weft::encode
