#define WEFT_ENCODE_LEVEL base
#include "tensor/encode/rows.h"

namespace weft::encode {

const Level kBaseLevel = {base::EncodeRows, base::HalvesToFloats, base::JoinParts};

}  // namespace weft::encode
