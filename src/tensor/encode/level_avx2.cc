#define WEFT_ENCODE_LEVEL avx2
#include "tensor/encode/rows.h"

namespace weft::encode {

const Level kAvx2Level = {avx2::EncodeRows, avx2::HalvesToFloats, avx2::JoinParts};

}  // namespace weft::encode
