// Base64 as RFC 4648 has it, for the files of tokenizers.
#pragma once

#include <string>
#include <string_view>

namespace weft::tokenizer {

// Appends the bytes; false where `text` is not base64 (padding may be missing). Then `bytes` holds
// what was read up to there.
bool DecodeBase64(std::string_view text, std::string& bytes);

}  // namespace weft::tokenizer
