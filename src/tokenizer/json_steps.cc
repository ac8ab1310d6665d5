#include "tokenizer/json_steps.h"

#include "tokenizer/base64.h"

#include "tokenizer/hints.h"
#include "tokenizer/model.h"

namespace weft::tokenizer {
namespace {

using nlohmann::json;

constexpr size_t kMostSteps = 64;
constexpr size_t kMostCharsmapBytes = 16 << 20;

constexpr const char* kByteLevelWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kPunctuation = R"([!-/:-@\[-`{-~\p{P}])";

Error Unknown(std::string_view kind, std::string_view type, std::string_view known) {
    return MakeError(ErrorCode::kUnsupported, "{} '{}' is not supported; supported: {}", kind,
                     type.substr(0, 80), known);
}

// The parts of a Sequence in order, with nested sequences flattened; a single part is a list of
// one.
Result<std::vector<const json*>> Flatten(const json& value, const char* kind, const char* list) {
    std::vector<const json*> flat;
    std::vector<const json*> open = {&value};
    while (!open.empty()) {
        const json* part = open.back();
        open.pop_back();
        if (part->is_null()) continue;
        Fields fields(*part, kind);
        const std::string type = fields.Text("type");
        if (type == "Sequence") {
            const json& parts = fields.Array(list);
            for (size_t i = parts.size(); i-- > 0;) open.push_back(&parts[i]);
        } else {
            flat.push_back(part);
        }
        if (flat.size() + open.size() > kMostSteps) fields.Fail("more than 64 steps");
        WEFT_TRY(fields.status());
    }
    return flat;
}

std::string EscapeLiteral(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                           (c >= 'A' && c <= 'Z') || static_cast<uint8_t>(c) >= 0x80;
        if (!plain) escaped += '\\';
        escaped += c;
    }
    return escaped;
}

// Pattern in the form {"String": ...} or {"Regex": ...}.
struct Pattern {
    std::string text;
    bool literal;
};

Result<Pattern> ReadPattern(Fields& fields, const char* key) {
    WEFT_TRY(fields.status());
    const json* value = fields.Find(key);
    if (value == nullptr) fields.Fail(fmt::format("'{}' is missing", key));
    if (value != nullptr && *value == "") fields.Fail("the pattern is empty");
    WEFT_TRY(fields.status());
    if (value->is_string()) return Pattern{value->get<std::string>(), true};
    Fields inner(*value, key);
    const bool literal = inner.Find("String") != nullptr;
    Pattern pattern{inner.Text(literal ? "String" : "Regex"), literal};
    if (pattern.text.empty()) inner.Fail("the pattern is empty");
    WEFT_TRY(inner.status());
    return pattern;
}

// CPU time of the tests of all expressions of one list of steps.
constexpr int64_t kProbeNs = 2'000'000'000;

Result<Regex> MakeRegex(const Pattern& pattern, int64_t& probe_ns) {
    if (pattern.literal) return Regex::Make(EscapeLiteral(pattern.text));
    WEFT_ASSIGN(Regex made, Regex::MakeForeign(pattern.text));
    WEFT_TRY(made.CheckEnds(pattern.text, probe_ns));
    return made;
}

std::string DecodeBase64Or(std::string_view text, std::string fallback) {
    std::string bytes;
    return DecodeBase64(text, bytes) ? bytes : fallback;
}

// strip_accents follows `lowercase` if it is absent.
void AddBertSteps(Fields& fields, NormalizeSteps& steps) {
    const bool lowercase = fields.BoolOr("lowercase", true);
    if (fields.BoolOr("clean_text", true)) steps.push_back(CleanText());
    if (fields.BoolOr("handle_chinese_chars", true)) steps.push_back(SpaceChinese());
    if (fields.BoolOr("strip_accents", lowercase)) {
        steps.push_back(NormalForm(false, false));
        steps.push_back(StripAccents(true));
    }
    if (lowercase) steps.push_back(Lowercase());
}

Status AddNormalizeStep(const json& value, NormalizeSteps& steps, int64_t& probe_ns) {
    Fields fields(value, "normalizer");
    const std::string type = fields.Text("type");
    if (type == "NFC") {
        steps.push_back(NormalForm(true, false));
    } else if (type == "NFD") {
        steps.push_back(NormalForm(false, false));
    } else if (type == "NFKC") {
        steps.push_back(NormalForm(true, true));
    } else if (type == "NFKD") {
        steps.push_back(NormalForm(false, true));
    } else if (type == "Lowercase") {
        steps.push_back(Lowercase());
    } else if (type == "BertNormalizer") {
        AddBertSteps(fields, steps);
    } else if (type == "StripAccents") {
        steps.push_back(StripAccents());
    } else if (type == "Prepend") {
        steps.push_back(Prepend(fields.Text("prepend")));
    } else if (type == "Strip") {
        const bool left = fields.BoolOr("strip_left", true);
        steps.push_back(StripSpaces(left, fields.BoolOr("strip_right", true)));
    } else if (type == "Replace") {
        WEFT_ASSIGN(const Pattern pattern, ReadPattern(fields, "pattern"));
        WEFT_ASSIGN(Regex regex, MakeRegex(pattern, probe_ns));
        steps.push_back(Replace(std::move(regex), fields.Text("content")));
    } else if (type == "Precompiled") {
        const std::string coded = fields.TextOr("precompiled_charsmap", "");
        if (coded.size() > kMostCharsmapBytes) fields.Fail("the charsmap is larger than 16 MB");
        const std::string bytes = DecodeBase64Or(coded, "?");  // "?" is too short to be valid
        WEFT_ASSIGN(Charsmap charsmap, Charsmap::Read(bytes));
        steps.push_back(Precompiled(std::move(charsmap)));
    } else {
        WEFT_TRY(fields.status());
        return Unknown(
            "normalizer", type,
            "BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Precompiled, Prepend, Replace, "
            "Sequence, Strip, StripAccents");
    }
    return fields.status();
}

SplitBehavior ReadBehavior(Fields& fields, SplitBehavior fallback) {
    static constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
        {"Isolated", SplitBehavior::kIsolated},
        {"Removed", SplitBehavior::kRemoved},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous}};
    if (fields.Find("behavior") == nullptr) return fallback;
    const std::string name = fields.Text("behavior");
    for (const auto& [known, behavior] : kNames) {
        if (name == known) return behavior;
    }
    fields.Fail("behavior '" + name.substr(0, 80) + "' is unknown");
    return fallback;
}

Status AddRegex(const char* pattern, SplitBehavior behavior, bool invert, SplitSteps& steps) {
    WEFT_ASSIGN(Regex regex, Regex::MakeForeign(pattern));
    steps.push_back(SplitByRegex(std::move(regex), behavior, invert));
    return {};
}

// Replaces known expressions of quadratic time by equivalent steps.
bool AddKnown(const Pattern& pattern, SplitBehavior behavior, bool invert, SplitSteps& steps) {
    static constexpr std::pair<std::string_view, DigitRule> kDigits[] = {
        {R"(\d{1,3}(?=(?:\d{3})*\b))", DigitRule::kWholeWords},
        {R"((?=(\d{3})+(?!\d)))", DigitRule::kSeams},
        {R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$)))", DigitRule::kRuns}};
    if (pattern.literal || invert || behavior != SplitBehavior::kIsolated) return false;
    if (pattern.text == R"(\s+$)") {
        steps.push_back(SplitSpacesAtEnd());
        return true;
    }
    for (const auto& [text, rule] : kDigits) {
        if (pattern.text != text) continue;
        steps.push_back(SplitDigitsFromRight(rule));
        return true;
    }
    return false;
}

Status AddSplit(Fields& fields, SplitSteps& steps, int64_t& probe_ns) {
    WEFT_ASSIGN(const Pattern pattern, ReadPattern(fields, "pattern"));
    if (fields.Find("behavior") == nullptr) fields.Fail("'behavior' is missing");
    const SplitBehavior behavior = ReadBehavior(fields, SplitBehavior::kIsolated);
    const bool invert = fields.BoolOr("invert", false);
    WEFT_TRY(fields.status());
    if (AddKnown(pattern, behavior, invert, steps)) return {};
    WEFT_ASSIGN(Regex regex, MakeRegex(pattern, probe_ns));
    steps.push_back(SplitByRegex(std::move(regex), behavior, invert));
    return {};
}

// Reads prepend_scheme, or add_prefix_space in older files.
PrependMark ReadScheme(Fields& fields) {
    const bool prefix = fields.BoolOr("add_prefix_space", true);
    const std::string scheme = fields.TextOr("prepend_scheme", prefix ? "always" : "never");
    if (scheme == "always") return PrependMark::kAlways;
    if (scheme == "first") return PrependMark::kFirst;
    if (scheme != "never") fields.Fail("prepend_scheme '" + scheme.substr(0, 80) + "' is unknown");
    return PrependMark::kNever;
}

Status AddSplitStep(const json& value, JsonSplit& split, int64_t& probe_ns) {
    Fields fields(value, "pre_tokenizer");
    const std::string type = fields.Text("type");
    SplitSteps& steps = split.steps;
    if (type == "ByteLevel") {
        if (fields.BoolOr("add_prefix_space", true)) steps.push_back(PrependSpace());
        if (fields.BoolOr("use_regex", true)) {
            WEFT_TRY(AddRegex(kByteLevelWords, SplitBehavior::kIsolated, false, steps));
        }
        split.bytes = true;
    } else if (type == "Split") {
        WEFT_TRY(AddSplit(fields, steps, probe_ns));
    } else if (type == "Metaspace") {
        std::string mark = fields.TextOr("replacement", std::string(kSpaceMark));
        if (mark.empty() || mark.size() > 4) fields.Fail("'replacement' is not a character");
        const PrependMark scheme = ReadScheme(fields);
        steps.push_back(MarkSpaces(std::move(mark), scheme, fields.BoolOr("split", true)));
    } else if (type == "Digits") {
        const bool each = fields.BoolOr("individual_digits", false);
        WEFT_TRY(AddRegex(R"(\p{N})", each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                          false, steps));
    } else if (type == "Punctuation") {
        const SplitBehavior behavior = ReadBehavior(fields, SplitBehavior::kIsolated);
        WEFT_TRY(AddRegex(kPunctuation, behavior, false, steps));
    } else if (type == "Whitespace") {
        // The \w of Rust's regex crate has the joiners, but no numbers of Latin-1.
        WEFT_TRY(AddRegex(R"([\w\u200C\u200D]+|[^\w\u200C\u200D\s]+)", SplitBehavior::kRemoved,
                          true, steps));
    } else if (type == "WhitespaceSplit") {
        WEFT_TRY(AddRegex(R"(\s)", SplitBehavior::kRemoved, false, steps));
    } else if (type == "BertPreTokenizer") {
        WEFT_TRY(AddRegex(R"(\s)", SplitBehavior::kRemoved, false, steps));
        WEFT_TRY(AddRegex(kPunctuation, SplitBehavior::kIsolated, false, steps));
    } else if (type == "CharDelimiterSplit") {
        const Pattern pattern{fields.Text("delimiter"), true};
        if (pattern.text.empty()) fields.Fail("'delimiter' is not a character");
        WEFT_TRY(fields.status());
        WEFT_ASSIGN(Regex regex, MakeRegex(pattern, probe_ns));
        steps.push_back(SplitByRegex(std::move(regex), SplitBehavior::kRemoved, false));
    } else {
        WEFT_TRY(fields.status());
        return Unknown("pre-tokenizer", type,
                       "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, "
                       "Punctuation, Sequence, Split, Whitespace, WhitespaceSplit");
    }
    return fields.status();
}

Status AddDecoder(const json& value, JsonDecoder& decoder) {
    Fields fields(value, "decoder");
    const std::string type = fields.Text("type");
    if (type == "ByteLevel") {
        decoder.pieces.unspell = true;
    } else if (type == "Metaspace") {
        const std::string mark = fields.TextOr("replacement", std::string(kSpaceMark));
        if (mark.empty()) fields.Fail("'replacement' is empty");
        decoder.strips_space |= ReadScheme(fields) != PrependMark::kNever;
        decoder.pieces.replace.emplace_back(mark, " ");
    } else if (type == "Replace") {
        WEFT_ASSIGN(const Pattern pattern, ReadPattern(fields, "pattern"));
        if (!pattern.literal) {
            return Unknown("decoder", "Replace by a regular expression", "Replace of a string");
        }
        decoder.pieces.replace.emplace_back(pattern.text, fields.Text("content"));
    } else if (type == "Strip") {
        const bool space = fields.TextOr("content", " ") == " ";
        const int64_t start = fields.IntOr("start", 0, 1 << 20, 0);
        if (!space || start > 1 || fields.IntOr("stop", 0, 1 << 20, 0) != 0) {
            return Unknown("decoder", "Strip of other than one space in front", "one space");
        }
        decoder.strips_space |= start == 1;
    } else if (type == "WordPiece") {
        decoder.strips_space = decoder.by_model = true;
    } else if (type != "ByteFallback" && type != "Fuse") {
        WEFT_TRY(fields.status());
        return Unknown(
            "decoder", type,
            "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece");
    }
    return fields.status();
}

}  // namespace

Result<NormalizeSteps> ReadNormalizer(const json& value) {
    WEFT_ASSIGN(const auto parts, Flatten(value, "normalizer", "normalizers"));
    NormalizeSteps steps;
    int64_t probe_ns = kProbeNs;
    for (const json* part : parts) WEFT_TRY(AddNormalizeStep(*part, steps, probe_ns));
    return steps;
}

Result<JsonSplit> ReadPreTokenizer(const json& value, bool spell) {
    WEFT_ASSIGN(const auto parts, Flatten(value, "pre_tokenizer", "pretokenizers"));
    JsonSplit split;
    int64_t probe_ns = kProbeNs;
    for (size_t i = 0; i < parts.size(); ++i) {
        const bool had = split.bytes;
        WEFT_TRY(AddSplitStep(*parts[i], split, probe_ns));
        const bool added = split.bytes && !had;
        if (added && (spell || i + 1 < parts.size())) split.steps.push_back(SpellBytes());
    }
    return split;
}

Result<JsonDecoder> ReadDecoder(const json& value) {
    WEFT_ASSIGN(const auto parts, Flatten(value, "decoder", "decoders"));
    JsonDecoder decoder;
    for (const json* part : parts) WEFT_TRY(AddDecoder(*part, decoder));
    return decoder;
}

}  // namespace weft::tokenizer
