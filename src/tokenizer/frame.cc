#include "tokenizer/frame.h"

#include <algorithm>

namespace weft::tokenizer {
namespace {

using nlohmann::json;

int32_t FindToken(const TokenizerData& data, const std::string& text) {
    if (text.empty()) return -1;
    const auto found = std::find(data.tokens.begin(), data.tokens.end(), text);
    return found == data.tokens.end() ? -1 : static_cast<int32_t>(found - data.tokens.begin());
}

// The id of the pair [text, id].
int32_t PairId(Fields& fields, const char* key) {
    const json* pair = fields.Find(key);
    const bool fits = pair != nullptr && pair->is_array() && pair->size() == 2 &&
                      (*pair)[1].is_number_integer() && (*pair)[1] >= 0 && (*pair)[1] < kMostTokens;
    if (fits) return (*pair)[1].get<int32_t>();
    fields.Fail(fmt::format("'{}' is not a pair of a token and its id", key));
    return -1;
}

void AddIds(Fields& fields, const std::string& name, std::vector<int32_t>& ids) {
    const json* table = fields.Find("special_tokens");
    const auto entry =
        table == nullptr || !table->is_object() ? json() : table->value(name, json());
    const auto list = entry.is_object() ? entry.value("ids", json()) : json();
    if (!list.is_array()) fields.Fail("special token '" + name.substr(0, 80) + "' has no ids");
    for (const json& id : list.is_array() ? list : json::array()) {
        const bool fits = id.is_number_integer() && id >= 0 && id < kMostTokens;
        if (fits && ids.size() < 64) {
            ids.push_back(id.get<int32_t>());
        } else {
            fields.Fail("special token '" + name.substr(0, 80) + "' has no ids");
        }
    }
}

// Reads "single" of a template: special tokens, the text once, special tokens.
Status ReadTemplate(Fields& fields, TokenizerData& data) {
    bool behind = false;
    for (const json& item : fields.Array("single")) {
        Fields parts(item, "post_processor: single");
        const json* special = parts.Find("SpecialToken");
        if (special != nullptr) {
            Fields token(*special, "post_processor: SpecialToken");
            const std::string name = token.Text("id");
            WEFT_TRY(token.status());
            AddIds(fields, name, behind ? data.suffix : data.prefix);
        } else if (parts.Find("Sequence") != nullptr && !behind) {
            behind = true;
        } else {
            parts.Fail("expected special tokens around one Sequence");
        }
        WEFT_TRY(parts.status());
    }
    return fields.status();
}

// Reads "pair" of a template: the special tokens between its two texts.
Status ReadMiddle(Fields& fields, TokenizerData& data) {
    if (fields.Find("pair") == nullptr) return {};
    int texts = 0;
    for (const json& item : fields.Array("pair")) {
        Fields parts(item, "post_processor: pair");
        const json* special = parts.Find("SpecialToken");
        if (parts.Find("Sequence") != nullptr) ++texts;
        if (special == nullptr || texts != 1) continue;
        Fields token(*special, "post_processor: SpecialToken");
        const std::string name = token.Text("id");
        WEFT_TRY(token.status());
        AddIds(fields, name, data.middle);
    }
    return fields.status();
}

Status ReadProcessor(const json& value, int depth, TokenizerData& data) {
    if (value.is_null()) return {};
    Fields fields(value, "post_processor");
    const std::string type = fields.Text("type");
    WEFT_TRY(fields.status());
    if (type == "ByteLevel") return {};  // affects offsets only
    if (type == "TemplateProcessing") {
        WEFT_TRY(ReadTemplate(fields, data));
        return ReadMiddle(fields, data);
    }
    if (type == "RobertaProcessing" || type == "BertProcessing") {
        data.prefix.push_back(PairId(fields, "cls"));
        data.suffix.push_back(PairId(fields, "sep"));
        data.middle.assign(type == "BertProcessing" ? 1 : 2, data.suffix.back());
        return fields.status();
    }
    if (type == "Sequence" && depth < 4) {
        for (const json& part : fields.Array("processors")) {
            WEFT_TRY(ReadProcessor(part, depth + 1, data));
        }
        return fields.status();
    }
    return MakeError(ErrorCode::kUnsupported,
                     "post-processor '{}' is not supported; supported: BertProcessing, ByteLevel, "
                     "RobertaProcessing, Sequence, TemplateProcessing",
                     type.substr(0, 80));
}

// Tokenizer classes of transformers that apply add_bos_token and add_eos_token even if there is a
// post-processor.
bool ObeysFlags(const std::string& name) {
    return name.starts_with("Llama") || name.starts_with("CodeLlama") ||
           name.starts_with("Gemma") || name.starts_with("Cohere");
}

void ObeyFlags(const TokenizerHints& hints, TokenizerData& data) {
    const bool begins = !data.prefix.empty() && data.prefix.front() == data.bos;
    const bool ends = !data.suffix.empty() && data.suffix.back() == data.eos;
    if (hints.add_bos && data.bos >= 0 && *hints.add_bos != begins) {
        if (begins) data.prefix.erase(data.prefix.begin());
        if (!begins) data.prefix.insert(data.prefix.begin(), data.bos);
    }
    if (hints.add_eos && data.eos >= 0 && *hints.add_eos != ends) {
        if (ends) data.suffix.pop_back();
        if (!ends) data.suffix.push_back(data.eos);
    }
}

}  // namespace

Status SetFrame(const json& post_processor, const TokenizerHints& hints, TokenizerData& data) {
    WEFT_TRY(ReadProcessor(post_processor, 0, data));
    const auto count = static_cast<int32_t>(data.tokens.size());
    const auto choose = [&](int32_t& id, const std::string& text, int32_t other) {
        if (id >= 0) return;
        id = FindToken(data, text);
        if (id < 0 && other < count) id = other;
    };
    choose(data.bos, hints.bos, hints.bos_id);
    choose(data.eos, hints.eos, hints.eos_id);
    choose(data.unk, hints.unk, -1);
    choose(data.pad, hints.pad, -1);
    for (const int32_t id : hints.ends) {
        if (id < count) data.ends.push_back(id);
    }
    if (ObeysFlags(hints.tokenizer_class) || post_processor.is_null()) ObeyFlags(hints, data);
    if (data.bos < 0 && !data.prefix.empty()) data.bos = data.prefix.front();
    data.add_bos = !data.prefix.empty() && data.prefix.front() == data.bos;
    data.add_eos = !data.suffix.empty() && data.suffix.back() == data.eos;
    return {};
}

}  // namespace weft::tokenizer
