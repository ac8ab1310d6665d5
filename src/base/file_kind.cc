#include "base/file_kind.h"

#include <algorithm>
#include <cstddef>

namespace weft {
namespace {

struct Kind {
    std::string_view begin, text;
};

constexpr std::string_view kConvert =
    "a file of PyTorch, not of safetensors or GGUF. Convert it, or get the model as safetensors";
constexpr std::string_view kPage =
    "a web page, not the file: the download went wrong. Check the address, and log in where the "
    "site asks for it";
constexpr std::string_view kOldGgml =
    "a GGML file from before GGUF (2023). Get the model as GGUF, or convert it again";

constexpr Kind kKinds[] = {
    {"version https://git-lfs",
     "a Git LFS pointer: the repository was cloned without the file itself. Run 'git lfs pull' "
     "there, or download the file"},
    {"GGUF", "a GGUF file. Give the file itself as the model"},
    {"PK\x03\x04", kConvert},
    {"\x80\x02", kConvert},
    {"lmgg", kOldGgml},
    {"fmgg", kOldGgml},
    {"tjgg", kOldGgml},
    {"<!doctype", kPage},
    {"<html", kPage},
    {"{", "a JSON file. Give the model's folder, or its GGUF file"},
};

char Lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// A safetensors file: the length of a header, and the header.
bool IsSafetensors(std::string_view bytes) {
    return bytes.size() > 8 && bytes[8] == '{' && bytes[7] == 0 && bytes[6] == 0;
}

}  // namespace

std::string WrongKind(std::string_view first_bytes) {
    for (const Kind& kind : kKinds) {
        const bool page = kind.text == kPage;
        const auto same = [&](char known, char byte) {
            return known == (page ? Lower(byte) : byte);
        };
        if (first_bytes.size() < kind.begin.size()) continue;
        const std::string_view begin = first_bytes.substr(0, kind.begin.size());
        if (std::ranges::equal(kind.begin, begin, same)) return std::string(kind.text);
    }
    if (!IsSafetensors(first_bytes)) return "";
    return "a safetensors file. Give the folder that it is in, with its config.json";
}

}  // namespace weft
