#include "formats/tokenizer/open.h"

namespace weft::formats {

Result<std::unique_ptr<Tokenizer>> OpenTokenizerFolder(const std::string& folder) {
    return MakeError(ErrorCode::kUnsupported, "{}: tokenizers of folders are not read yet", folder);
}

Result<std::string> ReadChatTemplate(const std::string& folder) {
    return MakeError(ErrorCode::kNotFound, "{}: chat templates of folders are not read yet",
                     folder);
}

}  // namespace weft::formats
