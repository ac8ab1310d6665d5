#include "train/dropout.h"

#include <string_view>

#include "model_files/hf/json.h"

namespace weft::train {
namespace {

bool IsDropout(std::string_view key) {
    const bool head = key.starts_with("classifier") || key.starts_with("summary");
    const bool named = key.find("dropout") != key.npos || key.ends_with("pdrop");
    return named && !head;
}

Status CheckObject(const model_files::hf::Json& object, const std::string& where) {
    for (const auto& [key, value] : object.items()) {
        if (!IsDropout(key) || !value.is_number() || value == 0) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: '{}' is {}, and Weft trains without dropout. --dropout 0 does so all "
                         "the same",
                         where, key, model_files::hf::Shown(value.dump()));
    }
    return {};
}

}  // namespace

Status CheckDropout(const std::string& folder) {
    WEFT_ASSIGN(const auto config, model_files::hf::Config::Read(folder + "/config.json"));
    WEFT_TRY(CheckObject(config.json(), config.where()));
    const auto text = config.json().find("text_config");
    const bool nested = text != config.json().end() && text->is_object();
    return nested ? CheckObject(*text, config.where() + ": text_config") : Status();
}

}  // namespace weft::train
