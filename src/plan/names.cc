#include "plan/names.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <span>
#include <utility>

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

// Keeps only letters and digits: "Qwen3-30B-A3B" and "qwen3_30b.a3b" are equal.
std::string Bare(std::string_view text) {
    std::string bare;
    for (const char c : text) {
        if (IsWordChar(c)) bare += Lower(c);
    }
    return bare;
}

// The next run of letters, or number with decimals, at or after `at`; moves `at` past it. "": the
// end.
std::string NextPart(std::string_view text, size_t& at) {
    const auto is_digit = [&](size_t i) {
        return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    };
    while (at < text.size() && !IsWordChar(text[at])) ++at;
    const size_t begin = at;
    if (is_digit(at)) {
        while (is_digit(at) || (at < text.size() && text[at] == '.' && is_digit(at + 1))) ++at;
    } else {
        while (at < text.size() && IsWordChar(text[at]) && !is_digit(at)) ++at;
    }
    return Lowered(text.substr(begin, at - begin));
}

// "qwen2.5-7b" -> qwen, 2.5, 7, b.
std::vector<std::string> PartsOfName(std::string_view text) {
    std::vector<std::string> parts;
    size_t at = 0;
    for (std::string part; !(part = NextPart(text, at)).empty();) parts.push_back(part);
    return parts;
}

std::vector<std::string> NumbersOf(std::string_view text) {
    std::vector<std::string> numbers = PartsOfName(text);
    std::erase_if(numbers, [](const std::string& part) { return part[0] < '0' || part[0] > '9'; });
    return numbers;
}

struct Known {
    std::string name, model, shape;
    int64_t context = 0;  // 0: the shape's own
    bool runs = true;
};

// Adds the names of aliases.json. "same_shape" maps a model to its shape: NAME: SHAPE, or, for
// another context, NAME: {"shape": SHAPE, "context": TOKENS}. "same_model" maps other names to
// models: NAME: MODEL. "not_run" maps models of architectures that Weft lacks to shapes.
void AddAliases(const nlohmann::json& aliases, std::vector<Known>& known) {
    for (const auto& [name, shape] : aliases.at("same_shape").items()) {
        if (shape.is_string()) {
            known.push_back({name, name, shape});
        } else {
            known.push_back({name, name, shape.at("shape"), shape.at("context")});
        }
    }
    const std::vector<std::string> lacking = aliases.at("not_run");
    for (Known& each : known) {
        each.runs = std::ranges::find(lacking, each.model) == lacking.end() &&
                    std::ranges::find(lacking, each.shape) == lacking.end();
    }
    const std::vector<Known> models = known;
    for (const auto& [name, model] : aliases.at("same_model").items()) {
        const auto found = std::ranges::find(models, model.get<std::string>(), &Known::name);
        WEFT_CHECK(found != models.end());
        known.push_back({name, found->name, found->shape, found->context, found->runs});
    }
}

// A type that 'weft quantize' lacks, from "other_types" of aliases.json: the nearest type of 'weft
// quantize', and the types of embeddings and logits: a type, "pure" or "mix", as in
// QuantizeOptions.
struct OtherType {
    std::string as, ends;
};

struct KnownNames {
    std::vector<Known> models;               // by name
    std::map<std::string, OtherType> types;  // by Bare name
    // Types of experts in files of Unsloth ("ud_experts"), by Bare name without UD-.
    std::map<std::string, std::string> ud_experts;
};

KnownNames ReadKnownNames() {
    KnownNames known;
    nlohmann::json aliases;
    for (const EmbeddedFile& file : EmbeddedFiles()) {
        if (file.folder != "shapes") continue;
        const std::string name(file.name);
        if (name != kAliasFile) {
            known.models.push_back({name, name, name});
        } else {
            aliases = ParseJsonText(file.text).value();
        }
    }
    AddAliases(aliases, known.models);
    std::ranges::sort(known.models, {}, &Known::name);
    for (const auto& [ends, types] : aliases.at("other_types").items()) {
        for (const auto& [name, as] : types.items()) known.types[Bare(name)] = {as, ends};
    }
    for (const auto& [name, type] : aliases.at("ud_experts").items()) {
        known.ud_experts[Bare(name)] = type;
    }
    return known;
}

// Parsed once, because the texts are part of the program.
const KnownNames& Names() {
    static const KnownNames known = ReadKnownNames();
    return known;
}

bool IsOneOf(std::span<const std::string_view> words, std::string_view word) {
    return std::ranges::find(words, Lowered(word)) != words.end();
}

// Skips a word that does not describe the shape. Adds a word for other weights to `variant`.
bool SkipWord(std::string_view word, std::string& variant) {
    static constexpr std::string_view kSameWeights[] = {
        "instruct", "chat",    "it",  "hf",      "gguf",     "ggml",
        "mlx",      "unsloth", "dwq", "dynamic", "quantized"};
    static constexpr std::string_view kOtherWeights[] = {"base",     "pt",          "think",
                                                         "thinking", "reasoning",   "preview",
                                                         "qat",      "abliterated", "uncensored"};
    const bool other = IsOneOf(kOtherWeights, word);
    if (other) variant += (variant.empty() ? "" : " ") + Lowered(word);
    return other || IsOneOf(kSameWeights, word);
}

// Reads the words after a name; false: one of them is unknown and may change the shape.
bool ReadRest(std::string_view rest, ShapeWord& found) {
    while (!rest.empty()) {
        const size_t end = std::min(rest.find_first_of("-. :"), rest.size());
        const std::string_view word = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (word.empty() || SkipWord(word, found.variant)) continue;
        // "UD-Q4_K_XL" contains a dash.
        if (Lowered(word) == "ud" || Lowered(word) == "i1") continue;
        if (!FindWeightType(word).ok()) return false;
        found.type = word;
    }
    return true;
}

// Length of the prefix of `text` that matches a name's parts, with skipped words between them; 0:
// no match, or the match ends within a word.
size_t LengthOfName(std::string_view text, const std::vector<std::string>& parts,
                    std::string& variant) {
    size_t at = 0;
    for (size_t i = 0; i < parts.size();) {
        size_t next = at;
        if (NextPart(text, next) == parts[i]) {
            at = next;
            ++i;
            continue;
        }
        const bool within_a_word = at == 0 || (at < text.size() && IsWordChar(text[at]));
        const size_t begin = std::min(text.find_first_not_of("-_. :", at), text.size());
        const size_t end = std::min(text.find_first_of("-_. :", begin), text.size());
        if (within_a_word || !SkipWord(text.substr(begin, end - begin), variant)) return 0;
        at = end;
    }
    return at < text.size() && IsWordChar(text[at]) ? 0 : at;
}

// The known name with the most parts that matches.
std::optional<ShapeWord> FindName(std::string_view text, const std::vector<Known>& names) {
    std::optional<ShapeWord> found;
    size_t most = 0;
    for (const Known& known : names) {
        const std::vector<std::string> parts = PartsOfName(known.name);
        if (parts.size() <= most) continue;
        ShapeWord word;
        word.name = known.name;
        word.model = known.model;
        word.shape = known.shape;
        word.runs = known.runs;
        word.context = known.context;
        const size_t length = LengthOfName(text, parts, word.variant);
        if (length == 0 || !ReadRest(text.substr(length), word)) continue;
        most = parts.size();
        found = std::move(word);
    }
    return found;
}

}  // namespace

std::optional<ShapeWord> FindShape(std::string_view word) {
    const std::vector<Known>& names = Names().models;
    if (word.starts_with("hf:")) word.remove_prefix(3);
    word.remove_prefix(word.rfind('/') + 1);  // npos + 1 is 0
    for (const std::string_view maker :
         {"meta-", "openai-", "google-", "qwen-", "c4ai-", "mistralai_", "allenai_", "google_",
          "qwen_", "nvidia_", "nvidia-"}) {
        if (Lowered(word).starts_with(maker) && FindName(word.substr(maker.size()), names)) {
            word.remove_prefix(maker.size());
        }
    }
    if (Lowered(word).ends_with(":latest")) word.remove_suffix(std::string_view(":latest").size());
    const size_t colon = word.rfind(':');
    if (colon == word.npos) return FindName(word, names);
    // After a colon comes a type or, as in qwen3:8b, a part of the name.
    auto found = FindName(word.substr(0, colon), names);
    if (found && FindWeightType(word.substr(colon + 1)).ok()) {
        found->type = word.substr(colon + 1);
        return found;
    }
    return FindName(word, names);
}

std::vector<std::string> ShapeNames() {
    std::vector<std::string> names;
    for (const Known& known : Names().models) names.push_back(known.name);
    return names;
}

std::vector<std::string> NamesLike(std::string_view word) {
    const std::vector<std::string> all = ShapeNames();
    // A different number means a different model, not a typing error.
    const std::string nearest = NearestWord(word, all);
    if (!nearest.empty() && NumbersOf(nearest) == NumbersOf(word)) return {nearest};
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
    if (names.empty()) return all;
    std::ranges::stable_sort(names, {},
                             [&](const std::string& name) { return EditDistance(word, name); });
    return names;
}

bool IsGgufType(std::string_view type) {
    std::string name = Lowered(type);
    for (const std::string_view script : {"ud-", "i1-"}) {
        if (name.starts_with(script)) name.erase(0, script.size());
    }
    const bool mix =
        (name.starts_with("q") || name.starts_with("iq")) && name.find('_') != name.npos;
    return quantize::FindFileType(name).ok() || (mix && FindWeightType(type).ok());
}

Result<quantize::QuantizeOptions> FindWeightType(std::string_view type) {
    quantize::QuantizeOptions options;
    options.sizes_only = true;
    std::string name = Lowered(type);
    const bool dynamic = name.starts_with("ud-");
    for (const std::string_view script : {"ud-", "i1-", "mlx-"}) {
        if (name.starts_with(script)) name.erase(0, script.size());
    }
    const auto experts = Names().ud_experts.find(Bare(name));
    if (dynamic && experts != Names().ud_experts.end()) {
        options.rules.push_back({"_exps[.]weight", *DTypeOfName(experts->second)});
    }
    if (const auto other = Names().types.find(Bare(name)); other != Names().types.end()) {
        const auto& [as, ends] = other->second;
        WEFT_ASSIGN(options.type, quantize::FindFileType(as));
        options.pure = ends == "pure";
        options.output = options.embedding = DTypeOfName(ends);
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
