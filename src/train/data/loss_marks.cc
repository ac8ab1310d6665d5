#include "train/data/loss_marks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"
#include "chat/tool_words.h"
#include "model_files/hf/json.h"
#include "train/data/messages.h"

namespace weft::train {
namespace {

using chat::OrderedJson;

// A mark of one message.
struct TurnMark {
    std::string_view name;
    bool learned;  // the meaning of 1 or true
};
constexpr TurnMark kTurnMarks[] = {
    {chat::kLossMember, true},  // OpenAI's and Mistral's fine-tuning files: "weight", 0 or 1
    {"train", true},            // axolotl, message_field_training in its documentation
    {"training", true},         // axolotl, the same in its examples
    {"trainable", true},        // Tinker cookbook, renderers: Message.trainable
    {"loss", true},             // ms-swift, custom dataset
    {"loss_weight", true},      // LLaMA-Factory v1, Message.loss_weight
    {"loss_mask", true},        // the factor of the loss, as in Megatron
    {"step_loss_mask", true},   // slime, MultiTurnLossMaskGenerator
    {"masked", false},          // torchtune, Message.masked: "if True, do not use in loss"
};

// Masks of token ids; a token is learned if all of them are 1.
constexpr const char* kTokenMasks[] = {
    "loss",             // Weft
    "loss_mask",        // Megatron, NeMo, slime, prime-rl
    "assistant_masks",  // transformers (return_assistant_tokens_mask), TRL (assistant_only_loss)
    "assistant_mask",   //
    "completion_mask",  // TRL (completion_only_loss)
    "response_mask",    // verl
};
// Masks of transformers' tokenizers that do not concern the loss.
constexpr std::string_view kOtherMasks[] = {"attention_mask", "special_tokens_mask"};

constexpr std::string_view kMaskWords[] = {"mask", "masks", "masked", "masking"};
constexpr std::string_view kMarkWords[] = {
    "mask",    "masks", "masked",  "masking",   "loss",       "train",  "training", "trainable",
    "trained", "learn", "learned", "learnable", "supervised", "weight", "weights"};
constexpr std::string_view kLabelWords[] = {"label", "labels", "target", "targets"};

// Whether one of the name's words ("loss_mask", "lossMask") is in `words`.
bool HasWord(std::string_view name, std::span<const std::string_view> words) {
    std::string word;
    bool lower = false;
    const auto known = [&] { return std::ranges::find(words, word) != words.end(); };
    for (const char c : name) {
        const auto byte = static_cast<unsigned char>(c);
        const bool begins = lower && std::isupper(byte) != 0;
        if (begins || std::isalnum(byte) == 0) {
            if (known()) return true;
            word.clear();
        }
        lower = std::islower(byte) != 0;
        if (std::isalnum(byte) != 0) word += static_cast<char>(std::tolower(byte));
    }
    return known();
}

bool IsOneOf(std::string_view name, const auto& names) {
    return std::ranges::find(names, name) != std::end(names);
}

std::optional<bool> MarkFlag(const OrderedJson& value) {
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number() && (value == 0 || value == 1)) return value == 1;
    return {};
}

std::string ShownValue(const OrderedJson& value) {
    return model_files::hf::Shown(value.dump(-1, ' ', true, OrderedJson::error_handler_t::replace));
}

// Whether a list beside a text masks its tokens or messages: a list of 0 and 1 under a mark's name,
// or labels (which may also be classes) that contain -100.
bool IsMaskList(std::string_view name, const OrderedJson& value) {
    if (!value.is_array() || value.empty()) return false;
    if (HasWord(name, kMarkWords)) {
        return std::ranges::all_of(
            value, [](const OrderedJson& each) { return MarkFlag(each).has_value(); });
    }
    return HasWord(name, kLabelWords) && std::ranges::any_of(value, [](const OrderedJson& each) {
               return each.is_number_integer() && each == -100;
           });
}

Error Ambiguous(std::string_view where, std::string_view name, const OrderedJson& value,
                std::string_view instead) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}'{}' is {}: some trainers skip the tokens that it marks, others learn "
                     "them. Write {} instead",
                     where, name, ShownValue(value), instead);
}

Error UnknownMark(std::string_view where, std::string_view name, std::string_view instead) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}'{}' looks like a loss mask, but Weft does not know it. Write {} instead, "
                     "or rename it if it is something else",
                     where, model_files::hf::Shown(std::string(name)), instead);
}

constexpr std::string_view kInsteadOfMask = "'loss_mask' (1: learned) or 'labels' (-100: not)";
constexpr std::string_view kInsteadOfList =
    "\"weight\": 0 in the messages that are not to be learned";
constexpr std::string_view kInsteadOfTurnMark = "\"weight\": 0 (not learned) or 1";

// Labels align with the record's ids.
Status ReadLabels(const OrderedJson& record, std::span<const int32_t> ids,
                  std::vector<uint8_t>& loss) {
    const auto found = record.find("labels");
    if (found == record.end() || found->is_null()) return {};
    if (!found->is_array() || found->size() != ids.size()) {
        return MakeError(ErrorCode::kCorrupt, "'labels' is not a list of {} numbers, one per token",
                         ids.size());
    }
    loss.resize(ids.size(), 1);
    for (size_t i = 0; i < ids.size(); ++i) {
        const OrderedJson& label = (*found)[i];
        const bool ignored = label.is_number_integer() && label == -100;
        if (!ignored && !(label.is_number_unsigned() && label == ids[i])) {
            return MakeError(ErrorCode::kUnsupported,
                             "'labels'[{}] is {}, the token there is {}; expected the same, or "
                             "-100 where nothing is learned (labels are not shifted)",
                             i, ShownValue(label), ids[i]);
        }
        if (ignored) loss[i] = 0;
    }
    return {};
}

// Rejects marks within the parts of a content.
Status RefusePartMarks(const OrderedJson& message, const std::string& where) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) return {};
    for (const OrderedJson& part : *content) {
        if (!part.is_object()) continue;
        for (const auto& [name, value] : part.items()) {
            if (value.is_null() || !HasWord(name, kMarkWords)) continue;
            return MakeError(ErrorCode::kUnsupported,
                             "{}'{}' marks a part of a turn; a turn is learned as a whole, or with "
                             "\"weight\": 0 not at all",
                             where, model_files::hf::Shown(name));
        }
    }
    return {};
}

// Rejects marks of an assistant's turn that are not in kTurnMarks; known marks are removed before.
Status RefuseOtherMarks(const OrderedJson& message, const std::string& where) {
    for (const auto& [name, value] : message.items()) {
        if (value.is_null() || name == chat::kLossMember || !HasWord(name, kMarkWords)) continue;
        if (name == "mask") return Ambiguous(where, name, value, kInsteadOfTurnMark);
        if (name == "train_detail") {
            return MakeError(ErrorCode::kUnsupported,
                             "{}'train_detail' marks parts of a turn; a turn is learned as a "
                             "whole, or with \"weight\": 0 not at all",
                             where);
        }
        return UnknownMark(where, name, kInsteadOfTurnMark);
    }
    return RefusePartMarks(message, where);
}

// Whether a member excludes the whole record from training.
bool LeavesOut(std::string_view name, const OrderedJson& value) {
    const auto mark = std::ranges::find(kTurnMarks, name, &TurnMark::name);
    if (mark == std::end(kTurnMarks)) return false;
    const bool counts = value.is_boolean() || (value.is_number() && name.ends_with("weight"));
    const auto flag = MarkFlag(value);
    return counts && flag && *flag != mark->learned;
}

Error LeftOut(const std::string& name, const OrderedJson& value) {
    return MakeError(ErrorCode::kUnsupported,
                     "'{}' is {} for the whole record, so nothing of it is to be learned. Remove "
                     "the record, or pass --skip-bad",
                     name, ShownValue(value));
}

// TRL's and LLaMA-Factory's tag of an answer; tables have it as text.
bool IsAnswerTag(std::string_view name, const OrderedJson& value) {
    if (name != "label" && name != "kto_tag") return false;
    if (value.is_boolean()) return true;
    if (!value.is_string()) return false;
    const std::string text = LowerCase(value.get_ref<const std::string&>());
    return text == "true" || text == "false";
}

Status CheckRecordMask(const std::string& name, const OrderedJson& value) {
    if (name != "mask" || !value.is_string()) return UnknownMark("", name, kInsteadOfList);
    // NeMo's GPTSFTChatDataset: names the speaker whose turns are not learned.
    if (RoleNamed(value.get_ref<const std::string&>()) == "user") return {};
    return MakeError(ErrorCode::kUnsupported,
                     "'mask' is {}: NeMo does not learn that speaker's turns. Weft learns the "
                     "assistant's turns alone; expected the user's name",
                     ShownValue(value));
}

}  // namespace

Result<std::vector<uint8_t>> TokenFlags(const OrderedJson& record, const char* key, size_t count) {
    std::vector<uint8_t> flags;
    const auto list = record.find(key);
    if (list == record.end() || list->is_null()) return flags;
    if (!list->is_array() || list->size() != count) {
        return MakeError(ErrorCode::kCorrupt, "'{}' is not a list of {} numbers, one per token",
                         key, count);
    }
    flags.reserve(count);
    for (const OrderedJson& each : *list) {
        const auto flag = MarkFlag(each);
        if (!flag) {
            return MakeError(ErrorCode::kCorrupt, "'{}' holds {}; expected a list of 0 and 1", key,
                             ShownValue(each));
        }
        flags.push_back(*flag ? 1 : 0);
    }
    return flags;
}

Result<std::vector<uint8_t>> LossOfTokens(const OrderedJson& record, std::span<const int32_t> ids) {
    std::vector<uint8_t> loss;
    WEFT_TRY(ReadLabels(record, ids, loss));
    for (const char* name : kTokenMasks) {
        WEFT_ASSIGN(const auto flags, TokenFlags(record, name, ids.size()));
        if (loss.empty()) {
            loss = flags;
            continue;
        }
        for (size_t i = 0; i < flags.size(); ++i) loss[i] = loss[i] & flags[i];
    }
    for (const auto& [name, value] : record.items()) {
        if (value.is_null() || name == "labels") continue;
        if (IsOneOf(name, kTokenMasks) || IsOneOf(name, kOtherMasks)) continue;
        if (LeavesOut(name, value)) return LeftOut(name, value);
        const bool list = value.is_array() && value.size() == ids.size();
        if (!HasWord(name, kMaskWords) &&
            !(list && (HasWord(name, kMarkWords) || HasWord(name, kLabelWords)))) {
            continue;
        }
        // torchtune's mask is 1 for tokens that are not learned, NeMo's for tokens that are.
        if (name == "mask") return Ambiguous("", name, value, kInsteadOfMask);
        return UnknownMark("", name, kInsteadOfMask);
    }
    return loss;
}

Status ReadTurnMarks(OrderedJson& messages) {
    for (size_t i = 0; i < messages.size(); ++i) {
        OrderedJson& message = messages[i];
        if (!message.is_object()) continue;
        const std::string where = fmt::format("message {}: ", i + 1);
        bool marked = false, learned = true;
        for (const TurnMark& each : kTurnMarks) {
            const auto mark = message.find(each.name);
            if (mark == message.end()) continue;
            const auto flag = mark->is_null() ? std::optional(each.learned) : MarkFlag(*mark);
            if (!flag) {
                return MakeError(ErrorCode::kCorrupt,
                                 "{}'{}' is {}; expected {} or {} (the turn is not learned), {} or "
                                 "{}",
                                 where, each.name, ShownValue(*mark), each.learned ? 0 : 1,
                                 !each.learned, each.learned ? 1 : 0, each.learned);
            }
            marked = true;
            learned = learned && *flag == each.learned;
            message.erase(mark);
        }
        if (marked) message[chat::kLossMember] = learned ? 1 : 0;
        if (chat::HasRole(message, "assistant")) WEFT_TRY(RefuseOtherMarks(message, where));
    }
    return {};
}

Status CheckRecordMarks(const OrderedJson& record, bool has_answer) {
    for (const auto& [name, value] : record.items()) {
        if (value.is_null()) continue;
        if (has_answer && IsAnswerTag(name, value)) {
            return MakeError(
                ErrorCode::kUnsupported,
                "a KTO record: '{}' is {} and says whether the answer is wanted: --loss "
                "kto learns such records. To learn the wanted answers alone, keep "
                "their records and remove '{}' from them",
                name, ShownValue(value), name);
        }
        if (LeavesOut(name, value)) return LeftOut(name, value);
        if (IsOneOf(name, kOtherMasks)) continue;
        if (HasWord(name, kMaskWords)) {
            WEFT_TRY(CheckRecordMask(name, value));
            continue;
        }
        if (IsMaskList(name, value)) return UnknownMark("", name, kInsteadOfList);
    }
    return {};
}

}  // namespace weft::train
