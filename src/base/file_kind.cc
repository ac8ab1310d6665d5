#include "base/file_kind.h"

#include <algorithm>
#include <span>

#include "base/file.h"

namespace weft {
namespace {

struct Kind {
    std::string_view begin, text;  // begin: in lower case for text formats
    bool text_file = false;        // a byte order mark and blanks may precede it; case is ignored
};

constexpr std::string_view kConvert =
    "a PyTorch file, not safetensors or GGUF. Convert it, or get the model as safetensors";
constexpr std::string_view kPage =
    "a web page instead of the file: the download failed. Check the URL, and log in if the site "
    "asks for it";
constexpr std::string_view kOldGgml =
    "a GGML file from before GGUF (2023). Get the model as GGUF, or convert it again";

constexpr std::string_view kPointer =
    "a Git LFS pointer: the repository was cloned without the file itself. Run 'git lfs pull' "
    "there, or download the file";
constexpr std::string_view kRefusal =
    "an error message instead of the file: the download failed. Check the URL, and log in if the "
    "site asks for it";
constexpr std::string_view kPacked = "a compressed file. Unpack it, and give its contents";
constexpr std::string_view kZeros = "only zeros: the download failed. Download it again";

constexpr std::string_view kSixteenZeros("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);

constexpr Kind kPlaceholders[] = {
    {"version https://git-lfs", kPointer, true},
    {"version https://hawser", kPointer, true},
    {"# xet version", "a Xet pointer: the file itself is elsewhere. Download the file", true},
    {"<!doctype", kPage, true},
    {"<html", kPage, true},
    {"<head", kPage, true},
    {"<?xml", kRefusal, true},
    {"<error>", kRefusal, true},
    {"entry not found", kRefusal, true},
    {"repository not found", kRefusal, true},
    {"invalid username", kRefusal, true},
    {"invalid credentials", kRefusal, true},
    {"access to model", kRefusal, true},
    {"access denied", kRefusal, true},
    {"not found", kRefusal, true},
    {"404: not found", kRefusal, true},
    {"unauthorized", kRefusal, true},
    {kSixteenZeros, kZeros}};

constexpr Kind kKinds[] = {
    {"GGUF", "a GGUF file. Give the file itself as the model"},
    {"PK\x03\x04", kConvert},
    {"\x80\x02", kConvert},
    {"lmgg", kOldGgml},
    {"fmgg", kOldGgml},
    {"tjgg", kOldGgml},
    {"\x1f\x8b", kPacked},
    {"\x28\xb5\x2f\xfd", kPacked},
    {"\xfd"
     "7zXZ",
     kPacked},
    {"7z\xbc\xaf", kPacked},
    {"MZqFpD", "a llamafile: a program with a GGUF file in it. 'unzip' takes that file out"},
    {"\x7f"
     "ELF",
     "a program, not a model"},
    {"\x89HDF", "a Keras or TensorFlow file. Get the model as safetensors or GGUF"},
    {"from ", "an Ollama Modelfile. Give the file that its FROM names as the model", true},
    {"{", "a JSON file. Give the model's folder, or its GGUF file"},
};

char Lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// A safetensors file: the header's length, then the header.
bool IsSafetensors(std::string_view bytes) {
    return bytes.size() > 8 && bytes[8] == '{' && bytes[7] == 0 && bytes[6] == 0;
}

std::string_view WithoutBlanks(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

// The text of the first kind that matches; empty: none.
std::string KindAmong(std::span<const Kind> kinds, std::string_view first_bytes) {
    for (const Kind& kind : kinds) {
        const std::string_view bytes = kind.text_file ? WithoutBlanks(first_bytes) : first_bytes;
        if (bytes.size() < kind.begin.size()) continue;
        const auto same = [&](char known, char byte) {
            return known == (kind.text_file ? Lower(byte) : byte);
        };
        if (std::ranges::equal(kind.begin, bytes.substr(0, kind.begin.size()), same)) {
            return std::string(kind.text);
        }
    }
    return "";
}

}  // namespace

std::string WrongKind(std::string_view first_bytes) {
    std::string kind = PlaceholderKind(first_bytes);
    if (kind.empty()) kind = KindAmong(kKinds, first_bytes);
    if (!kind.empty() || !IsSafetensors(first_bytes)) return kind;
    return "a safetensors file. Give the folder that it is in, with its config.json";
}

std::string PlaceholderKind(std::string_view first_bytes) {
    return KindAmong(kPlaceholders, first_bytes);
}

Result<std::string> ReadModelText(const std::string& path, uint64_t most_bytes) {
    WEFT_ASSIGN(std::string text, ReadTextFile(path, most_bytes));
    const std::string kind = PlaceholderKind(std::string_view(text).substr(0, kKindBytes));
    if (kind.empty()) return text;
    return MakeError(ErrorCode::kCorrupt, "{}: the file holds {}", path, kind);
}

}  // namespace weft
