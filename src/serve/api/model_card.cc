#include "serve/api/model_card.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>

namespace weft::serve {
namespace {

using model_files::Metadata;
using model_files::MetaEntry;
using model_files::MetaType;

constexpr size_t kMostCardText = 4096;
constexpr uint64_t kMostCardList = 5;

// Returns null if the value cannot be read.
Json ScalarJson(const Metadata& meta, const MetaEntry& entry) {
    const std::string_view key = entry.key;
    switch (entry.type) {
        case MetaType::kU8:
        case MetaType::kU16:
        case MetaType::kU32:
        case MetaType::kU64: {
            const auto number = meta.U64(key);
            return number.ok() ? Json(*number) : Json();
        }
        case MetaType::kI8:
        case MetaType::kI16:
        case MetaType::kI32:
        case MetaType::kI64: {
            const auto number = meta.Int(key, INT64_MIN, INT64_MAX);
            return number.ok() ? Json(*number) : Json();
        }
        case MetaType::kF32:
        case MetaType::kF64: {
            const auto number = meta.F64(key);
            return number.ok() ? Json(*number) : Json();
        }
        case MetaType::kBool: {
            const auto flag = meta.Bool(key);
            return flag.ok() ? Json(*flag) : Json();
        }
        case MetaType::kString: {
            const auto text = meta.String(key);
            return text.ok() ? Json(text->substr(0, kMostCardText)) : Json();
        }
        case MetaType::kArray: return Json::array();
    }
    return {};
}

// A short list of numbers or strings.
Json ListJson(const Metadata& meta, const MetaEntry& entry) {
    Json list = Json::array();
    if (entry.count > kMostCardList) return list;
    if (entry.element_type == MetaType::kString) {
        const auto texts = meta.Strings(entry.key);
        if (!texts.ok()) return list;
        for (const std::string_view text : *texts) {
            list.push_back(std::string(text.substr(0, kMostCardText)));
        }
    } else if (entry.element_type != MetaType::kArray) {
        const auto numbers = meta.Floats(entry.key);
        if (numbers.ok()) list = *numbers;
    }
    return list;
}

Json InfoJson(const Metadata& meta) {
    Json info = Json::object();
    for (const MetaEntry& entry : meta.entries()) {
        if (entry.key.starts_with("tokenizer.chat_template")) continue;
        const bool list = entry.type == MetaType::kArray;
        Json value = list ? ListJson(meta, entry) : ScalarJson(meta, entry);
        if (!value.is_null()) info[std::string(entry.key)] = std::move(value);
    }
    return info;
}

// Equal for copies of the same model; cheaper than its fingerprint.
std::string CardDigest(const model_files::ModelSource& source) {
    model_files::FingerprintMaker maker;
    for (const MetaEntry& entry : source.meta().entries()) {
        maker.Add(std::as_bytes(std::span(entry.key)));
        maker.Add(entry.bytes);
    }
    for (const model_files::TensorInfo& tensor : source.tensors()) {
        maker.Add(std::as_bytes(std::span(tensor.name)));
        maker.Add(static_cast<uint64_t>(tensor.dtype));
        maker.Add(tensor.bytes);
    }
    return maker.Finish();
}

bool Thinks(const chat::Chat& chat) {
    const std::string_view source = chat.source();
    return std::ranges::any_of(
        std::initializer_list<std::string_view>{"think>", "enable_thinking", "[THINK]",
                                                "<|channel|>", "reasoning_content"},
        [&](std::string_view marker) { return source.find(marker) != std::string_view::npos; });
}

}  // namespace

ModelCard DescribeModel(const model_files::ModelSource& source, const std::string& path,
                        const chat::Chat* chat) {
    ModelCard card;
    const Metadata& meta = source.meta();
    if (auto family = meta.StringOr("general.architecture", ""); family.ok()) card.family = *family;
    card.format = source.name().starts_with("synthetic:") ? "synthetic"
                  : source.folder().empty()               ? "gguf"
                                                          : "safetensors";
    card.quantization = source.MainType();
    card.digest = CardDigest(source);
    card.size_bytes = source.TotalBytes();
    card.parameters = source.Parameters();
    struct stat file {};
    if (::stat(path.c_str(), &file) == 0) card.modified_s = file.st_mtime;
    card.info = InfoJson(meta);
    card.info["general.parameter_count"] = card.parameters;
    // without tool support in the template, tools are described in plain text
    if (chat != nullptr) card.chat_template = chat->source();
    card.tools = chat != nullptr && chat->tools_status().ok();
    card.thinking = chat != nullptr && Thinks(*chat);
    return card;
}

std::string ParametersText(int64_t parameters) {
    const auto count = static_cast<double>(parameters);
    if (count >= 999.95e6) return fmt::format("{:.1f}B", count / 1e9);
    if (count >= 999.995e3) return fmt::format("{:.2f}M", count / 1e6);
    return fmt::format("{:.2f}K", count / 1e3);
}

}  // namespace weft::serve
