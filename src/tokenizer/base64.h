// Base64 decoder (RFC 4648), for tokenizer files.
#pragma once

#include <string>
#include <string_view>

namespace weft::tokenizer {

// Appends the decoded bytes of `text` to `bytes`. Padding may be missing. Returns false if `text`
// is invalid; `bytes` then also has the part decoded before the error.
bool DecodeBase64(std::string_view text, std::string& bytes);

}  // namespace weft::tokenizer
