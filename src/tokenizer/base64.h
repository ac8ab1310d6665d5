// Base64 decoder (RFC 4648), for tokenizer files.
#pragma once

#include <string>
#include <string_view>

namespace weft::tokenizer {

// Appends the decoded bytes. Padding may be missing. False: `text` is invalid; `bytes` then holds
// the part decoded before the error.
bool DecodeBase64(std::string_view text, std::string& bytes);

}  // namespace weft::tokenizer
