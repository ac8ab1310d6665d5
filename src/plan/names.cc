#include "plan/names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/json.h"
#include "base/nearest_word.h"
#include "plan/machine.h"

namespace weft::plan {
namespace {

constexpr std::string_view kAliasFile = "aliases";

char Lower(char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}
bool IsWordChar(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

std::string Lowered(std::string_view text) {
    std::string low(text);
    std::ranges::transform(low, low.begin(), Lower);
    return low;
}

// Letters and digits alone: "Qwen3-30B-A3B" and "qwen3_30b.a3b" are the same.
std::string Bare(std::string_view text) {
    std::string bare;
    for (const char c : text) {
        if (IsWordChar(c)) bare += Lower(c);
    }
    return bare;
}

struct Named {
    std::string shape;
    int64_t context = 0;  // 0: the shape's own
};

// Every name, and its shape. In the file of aliases it is NAME: SHAPE, or with a context of its own
// NAME: {"shape": SHAPE, "context": TOKENS}.
std::map<std::string, Named> AllNames() {
    std::map<std::string, Named> names;
    for (const EmbeddedFile& file : EmbeddedFiles()) {
        if (file.folder != "shapes") continue;
        if (file.name != kAliasFile) {
            names.emplace(file.name, Named{std::string(file.name)});
            continue;
        }
        const auto json = ParseJsonText(file.text);
        WEFT_CHECK(json.ok());
        for (const auto& [name, shape] : json->items()) {
            const Named named = shape.is_string()
                                    ? Named{shape.get<std::string>()}
                                    : Named{shape.at("shape"), shape.at("context")};
            names.emplace(name, named);
        }
    }
    return names;
}

// Words behind a name that leave the shape as it is.
bool ChangesNothing(std::string_view word) {
    static constexpr std::array kWords = {
        "instruct",    "chat",  "it",         "hf",        "base",     "gguf", "ggml", "mlx",
        "thinking",    "think", "pt",         "preview",   "terminus", "exp",  "qat",  "unsloth",
        "abliterated", "dwq",   "uncensored", "reasoning", "1m",       "128k", "4k"};
    if (std::ranges::find(kWords, word) != kWords.end()) return true;
    if (word.starts_with("v")) word.remove_prefix(1);
    // Versions and dates: v0, 1, 2507, 20250414.
    return !word.empty() && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

// The words behind a name; false where one means something that is not known.
bool ReadRest(std::string_view rest, std::string& type) {
    while (!rest.empty()) {
        const size_t end = std::min(rest.find_first_of("-. :"), rest.size());
        const std::string_view word = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (word.empty() || ChangesNothing(Lowered(word))) continue;
        // "UD-Q4_K_XL" has a dash of its own.
        if (Lowered(word) == "ud" || Lowered(word) == "i1") continue;
        if (!FindWeightType(word).ok()) return false;
        type = word;
    }
    return true;
}

// How much of `text` the letters and digits of `bare` take, which it begins with; 0: it doesn't,
// or goes on in the middle of a word.
size_t PrefixLength(std::string_view text, std::string_view bare) {
    size_t taken = 0, at = 0;
    for (; at < text.size() && taken < bare.size(); ++at) {
        if (!IsWordChar(text[at])) continue;
        if (Lower(text[at]) != bare[taken]) return 0;
        ++taken;
    }
    if (taken < bare.size() || (at < text.size() && IsWordChar(text[at]))) return 0;
    return at;
}

std::optional<ShapeWord> FindName(std::string_view text) {
    std::optional<ShapeWord> found;
    size_t longest = 0;
    for (const auto& [name, named] : AllNames()) {
        const size_t length = PrefixLength(text, Bare(name));
        std::string type;
        if (length <= longest || !ReadRest(text.substr(length), type)) continue;
        longest = length;
        found = {named.shape, type, named.context};
    }
    return found;
}

// Of each type: where it is counted as, and what the embeddings and the logits are.
struct OtherType {
    std::string_view name, as;
    enum { kAsMix, kPure, kEndsF16, kEndsBf16, kEndsQ8 } ends;
};
constexpr OtherType kOtherTypes[] = {
    {"2bit", "Q2_K", OtherType::kPure},       {"3bit", "Q3_K_S", OtherType::kPure},
    {"4bit", "Q4_0", OtherType::kPure},       {"5bit", "Q5_0", OtherType::kPure},
    {"6bit", "Q6_K", OtherType::kPure},       {"8bit", "Q8_0", OtherType::kPure},
    {"q4", "Q4_0", OtherType::kPure},         {"q8", "Q8_0", OtherType::kPure},
    {"16bit", "BF16", OtherType::kPure},      {"fp16", "F16", OtherType::kAsMix},
    {"bfloat16", "BF16", OtherType::kAsMix},  {"fp32", "F32", OtherType::kAsMix},
    {"fp8", "Q8_0", OtherType::kEndsBf16},    {"int8", "Q8_0", OtherType::kEndsBf16},
    {"w8a8", "Q8_0", OtherType::kEndsBf16},   {"w8a16", "Q8_0", OtherType::kEndsBf16},
    {"awq", "MXFP4", OtherType::kEndsBf16},   {"gptq", "MXFP4", OtherType::kEndsBf16},
    {"int4", "MXFP4", OtherType::kEndsBf16},  {"w4a16", "MXFP4", OtherType::kEndsBf16},
    {"nvfp4", "Q4_0", OtherType::kEndsBf16},  {"fp4", "Q4_0", OtherType::kEndsBf16},
    {"bnb", "Q4_0", OtherType::kEndsBf16},    {"nf4", "Q4_0", OtherType::kEndsBf16},
    {"q8_k_xl", "Q8_0", OtherType::kEndsF16}, {"q8_k", "Q8_0", OtherType::kAsMix},
    {"q6_k_xl", "Q6_K", OtherType::kEndsQ8},  {"q6_k_l", "Q6_K", OtherType::kEndsQ8},
    {"q5_k_xl", "Q5_K_M", OtherType::kAsMix}, {"q5_k_l", "Q5_K_M", OtherType::kEndsQ8},
    {"q4_k_xl", "Q4_K_M", OtherType::kAsMix}, {"q4_k_l", "Q4_K_M", OtherType::kEndsQ8},
    {"q3_k_xl", "Q3_K_M", OtherType::kAsMix}, {"q2_k_xl", "Q2_K", OtherType::kAsMix},
    {"q2_k_l", "Q2_K", OtherType::kEndsQ8},   {"q1_0", "IQ1_S", OtherType::kAsMix},
    {"q4_0_4_4", "Q4_0", OtherType::kAsMix},  {"q4_0_8_8", "Q4_0", OtherType::kAsMix}};

}  // namespace

std::optional<ShapeWord> FindShape(std::string_view word) {
    if (word.starts_with("hf:")) word.remove_prefix(3);
    word.remove_prefix(word.rfind('/') + 1);  // npos + 1 is 0
    for (const std::string_view maker : {"meta-", "openai-", "google-", "qwen-"}) {
        if (Lowered(word).starts_with(maker) && FindName(word.substr(maker.size()))) {
            word.remove_prefix(maker.size());
        }
    }
    const size_t colon = word.rfind(':');
    if (colon == word.npos) return FindName(word);
    // Behind a colon is a type, or as in qwen3:8b a part of the name.
    auto found = FindName(word.substr(0, colon));
    if (found && FindWeightType(word.substr(colon + 1)).ok()) {
        found->type = word.substr(colon + 1);
        return found;
    }
    return FindName(word);
}

std::vector<std::string> ShapeNames() {
    std::vector<std::string> names;
    for (const auto& [name, named] : AllNames()) names.push_back(name);
    return names;
}

std::vector<std::string> NamesLike(std::string_view word) {
    const std::vector<std::string> all = ShapeNames();
    if (const std::string nearest = NearestWord(word, all); !nearest.empty()) return {nearest};
    constexpr size_t kLeast = 3;
    const std::string asked = Bare(word);
    std::vector<std::string> names;
    size_t most = kLeast;
    for (const std::string& name : all) {
        const std::string bare = Bare(name);
        const auto [a, b] = std::ranges::mismatch(asked, bare);
        const auto alike = static_cast<size_t>(a - asked.begin());
        if (alike < most) continue;
        if (alike > most) names.clear();
        most = alike;
        names.push_back(name);
    }
    return names.empty() ? all : names;
}

Result<quantize::QuantizeOptions> FindWeightType(std::string_view type) {
    quantize::QuantizeOptions options;
    options.sizes_only = true;
    std::string name = Lowered(type);
    for (const std::string_view script : {"ud-", "i1-", "mlx-"}) {
        if (name.starts_with(script)) name.erase(0, script.size());
    }
    for (const OtherType& other : kOtherTypes) {
        if (Bare(other.name) != Bare(name)) continue;
        WEFT_ASSIGN(options.type, quantize::FindFileType(other.as));
        switch (other.ends) {
            case OtherType::kAsMix: break;
            case OtherType::kPure: options.pure = true; break;
            case OtherType::kEndsF16: options.output = options.embedding = DType::kF16; break;
            case OtherType::kEndsBf16: options.output = options.embedding = DType::kBF16; break;
            case OtherType::kEndsQ8: options.output = options.embedding = DType::kQ8_0; break;
        }
        return options;
    }
    const auto known = quantize::FindFileType(name);
    if (!known.ok()) {
        return MakeError(ErrorCode::kUsage,
                         "{}; and of other programs UD-Q4_K_XL and its kin, 4bit to 8bit, FP8, "
                         "INT8, AWQ, GPTQ, NVFP4",
                         known.error().message);
    }
    options.type = *known;
    return options;
}

}  // namespace weft::plan
