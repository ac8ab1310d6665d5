#include "train/data/text_record.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/text.h"
#include "model_files/hf/json.h"
#include "train/data/messages.h"

namespace weft::train {
namespace {

using chat::OrderedJson;
using model_files::Pooling;

constexpr size_t kMostTexts = 256;

const OrderedJson* Member(const OrderedJson& record, const std::string& name) {
    const auto at = record.find(name);
    return at == record.end() || at->is_null() ? nullptr : &*at;
}

struct Named {
    const char* name;
    const OrderedJson* value;
};
// The first member that is there; without one, the first name.
Named FirstOf(const OrderedJson& record, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (const OrderedJson* value = Member(record, name)) return {name, value};
    }
    return {*names.begin(), nullptr};
}

std::string Shown(const OrderedJson& value) {
    return model_files::hf::Shown(value.dump(-1, ' ', true, OrderedJson::error_handler_t::replace));
}

// A number, or the text of one (in a table).
std::optional<double> NumberOf(const OrderedJson& value) {
    if (value.is_number()) return value.get<double>();
    if (!value.is_string()) return std::nullopt;
    const std::string text(Trim(value.get_ref<const std::string&>()));
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

Result<std::string> TextOf(const Named& member, std::string_view expected) {
    const OrderedJson* value = member.value;
    if (value == nullptr) {
        return MakeError(ErrorCode::kCorrupt, "no '{}' in the record; expected {}", member.name,
                         expected);
    }
    if (value->is_array() && value->size() == 1) value = &value->front();
    std::optional<std::string> text = TextOfValue(*value);
    if (text && !Trim(*text).empty()) return *std::move(text);
    return MakeError(ErrorCode::kCorrupt, "'{}' is {}; expected a text that is not empty",
                     member.name,
                     value->is_number() ? std::string(KindOf(*value)) : Shown(*member.value));
}

Result<double> LabelOf(const OrderedJson& record, int64_t labels) {
    const Named member = FirstOf(record, {"label", "labels"});
    const std::string range = labels > 0 ? fmt::format("0 to {}", labels - 1) : "0 or more";
    if (member.value == nullptr) {
        return MakeError(ErrorCode::kCorrupt,
                         "no 'label' in the record; expected the number of a class, {}", range);
    }
    const auto number = NumberOf(*member.value);
    const double most = labels > 0 ? static_cast<double>(labels - 1) : 1e9;
    if (number && *number >= 0 && *number <= most && *number == std::floor(*number)) {
        return *number;
    }
    return MakeError(ErrorCode::kCorrupt, "'{}' is {}; expected the number of a class, {}",
                     member.name, Shown(*member.value), range);
}

}  // namespace

void MarkRows(Pooling pooling, Sample& sample) {
    sample.tokens.push_back(sample.tokens.back());
    const bool all = pooling != Pooling::kLast && pooling != Pooling::kCls;
    sample.loss.assign(sample.tokens.size(), all ? 1 : 0);
    sample.loss[0] = 0;
    if (all) return;
    sample.loss[pooling == Pooling::kCls ? 1 : sample.loss.size() - 1] = 1;
}

void MarkScore(const Encoder& encoder, Sample& sample) {
    const int32_t padding = encoder.padding();
    while (sample.tokens.size() > 1 && sample.tokens.back() == padding) sample.tokens.pop_back();
    MarkRows(Pooling::kLast, sample);
}

Result<double> MarginOf(const OrderedJson& record) {
    const OrderedJson* value = record.is_object() ? Member(record, "margin") : nullptr;
    if (value == nullptr) return 0.0;
    const auto number = NumberOf(*value);
    constexpr double kMost = std::numeric_limits<float>::max();
    if (number && std::abs(*number) <= kMost) return *number;
    return MakeError(ErrorCode::kCorrupt, "'margin' is {}; expected a number of at most {:g}",
                     Shown(*value), kMost);
}

Result<std::vector<std::string>> TextsOf(const OrderedJson& record) {
    constexpr std::string_view kExpected = "'anchor' and 'positive', and perhaps 'negative'";
    if (!record.is_object()) {
        return MakeError(ErrorCode::kCorrupt, "a JSON {}; expected an object with {}",
                         std::string_view(record.type_name()), kExpected);
    }
    std::vector<std::string> texts;
    const auto add = [&](const Named& member) -> Status {
        WEFT_ASSIGN(std::string text, TextOf(member, kExpected));
        texts.push_back(std::move(text));
        return {};
    };
    WEFT_TRY(add(FirstOf(record, {"anchor", "query", "question"})));
    WEFT_TRY(add(FirstOf(record, {"positive", "pos", "answer"})));
    if (Member(record, "negative") != nullptr) WEFT_TRY(add(FirstOf(record, {"negative"})));
    for (size_t i = 1; i < kMostTexts; ++i) {
        const std::string name = fmt::format("negative_{}", i);
        if (Member(record, name) == nullptr) break;
        WEFT_TRY(add({name.c_str(), Member(record, name)}));
    }
    const Named list = FirstOf(record, {"negatives", "neg"});
    if (list.value == nullptr) return texts;
    if (!list.value->is_array() || list.value->size() > kMostTexts) {
        return MakeError(ErrorCode::kCorrupt, "'{}' is {}; expected a list of at most {} texts",
                         list.name, Shown(*list.value), kMostTexts);
    }
    for (const OrderedJson& each : *list.value) WEFT_TRY(add({list.name, &each}));
    return texts;
}

Result<Sample> EncodeTexts(const Encoder& encoder, LossKind loss, const TextForm& form,
                           const OrderedJson& record) {
    std::vector<std::string> texts;
    Sample made;
    if (loss == LossKind::kClassification) {
        if (!record.is_object()) {
            return MakeError(ErrorCode::kCorrupt,
                             "a JSON {}; expected an object with 'text' and "
                             "'label'",
                             std::string_view(record.type_name()));
        }
        WEFT_ASSIGN(std::string text,
                    TextOf(FirstOf(record, {"text", "sentence"}), "'text' and 'label'"));
        texts.push_back(std::move(text));
        WEFT_ASSIGN(made.label, LabelOf(record, form.labels));
    } else {
        WEFT_ASSIGN(texts, TextsOf(record));
        if (form.texts > 0 && texts.size() != form.texts) {
            return MakeError(ErrorCode::kCorrupt,
                             "{} texts (an anchor, a positive and {} negatives); expected {}, as "
                             "in the first record",
                             texts.size(), texts.size() - 2, form.texts);
        }
    }
    for (const std::string& text : texts) {
        WEFT_ASSIGN(Sample sample, encoder.EncodeText(text, form.most_tokens));
        if (HasHead(loss)) {
            MarkScore(encoder, sample);
        } else {
            MarkRows(form.pooling, sample);
        }
        made.Append(sample, SampleRole::kText);
    }
    return made;
}

}  // namespace weft::train
