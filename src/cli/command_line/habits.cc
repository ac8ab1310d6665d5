#include "cli/command_line/habits.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "cli/command_line/habit_words.h"
#include "cli/command_line/shorthand.h"
#include "cli/models/model_names.h"

namespace weft::cli {
namespace {

// Names of the training command: the one that users type, and the full one (train/train.cc).
constexpr std::string_view kTrain = "weft train", kTrainRun = "weft train run";

bool Takes(const DescribedCommand& command, std::string_view flag) {
    if (flag != kModelWord) return command.FindFlag(std::string(flag)) != nullptr;
    return std::ranges::any_of(command.flags, [](const DescribedFlag& each) {
        return each.positional && each.names[0] == kModelWord;
    });
}

bool IsDigit(char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// The flag's name, with "-" instead of "_", as in all flags.
std::string NameOf(const std::string& word) {
    std::string name = word.substr(0, word.find('='));
    if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '_', '-');
    return name;
}

// The row of a flag that the command lacks; null: the command has the flag, or no row names it.
const Synonym* SynonymOf(const DescribedCommand& command, const std::string& full_name,
                         const std::string& name) {
    if (command.FindFlag(name) != nullptr) return nullptr;
    const auto same = std::ranges::find_if(Synonyms(), [&](const Synonym& row) {
        return Lists(row.names, name) && Takes(command, row.flag) &&
               (row.taker != Taker::kInference || IsInference(full_name));
    });
    return same == Synonyms().end() ? nullptr : &*same;
}

// A command line whose command is known.
class Line {
  public:
    Line(const DescribedCommand& command, std::string full_name, size_t first,
         std::vector<std::string>& words, std::map<std::string, std::string>& translated)
        : command_(command),
          full_name_(std::move(full_name)),
          first_(first),
          words_(words),
          translated_(translated) {}

    Status Apply() {
        size_t at = first_;
        for (; at < words_.size() && words_[at] != "--"; ++at) {
            if (LooksLikeFlag(words_[at])) WEFT_TRY(ApplyTo(at));
        }
        PutCacheTypes(at);
        const bool needs_model = full_name_ == "weft run" || full_name_ == "weft serve";
        if (words_.size() > first_ || !needs_model) return {};
        return MakeError(ErrorCode::kUsage,
                         "'{0}': MODEL is missing: {0} MODEL, such as qwen3:8b. 'weft list' shows "
                         "those here",
                         full_name_);
    }

  private:
    // Translates the flag at `at`, and moves `at` after its value.
    Status ApplyTo(size_t& at) {
        std::string& word = words_[at];
        const std::string typed = NameOf(word);
        const Synonym* same = FindSynonym(typed);
        if (same != nullptr && same->flag == kModelWord) {
            return MoveModel(at, std::min(word.find('='), word.size()));
        }
        if (same != nullptr && (same->taker == Taker::kKeys || same->taker == Taker::kValues)) {
            return TakeCacheType(at, *same);
        }
        WEFT_TRY(Translate(word));
        const std::string name = NameOf(word);
        const bool former = same != nullptr && same->taker == Taker::kFormer;
        if (name != typed && !former) translated_[typed] = name;
        const DescribedFlag* flag = AwaitsValue(command_, name);
        const bool joined = word.size() > name.size();
        if (flag == nullptr || (!joined && at + 1 == words_.size())) return {};
        TranslateValue(at, joined, name);
        return {};
    }

    const Synonym* FindSynonym(const std::string& name) const {
        return SynonymOf(command_, full_name_, name);
    }

    // Replaces the flag's name by Weft's. Errors: kUsage, with the next step, if there is no such
    // flag.
    Status Translate(std::string& word) const {
        const std::string name = NameOf(word), value = word.substr(name.size());
        const bool one_dash = !name.starts_with("--");
        const auto is = [&](const std::string& flag) { return command_.FindFlag(flag) != nullptr; };
        if (is(name)) return {};
        if (const Synonym* same = FindSynonym(name)) return Put(word, same->flag, value);
        WEFT_TRY(Advise(name));
        if (!one_dash || name.size() == 2) return {};
        const std::string with_two = "-" + name;  // "--temp" for "-temp"
        if (is(with_two)) return Put(word, with_two, value);
        if (const Synonym* same = FindSynonym(with_two)) return Put(word, same->flag, value);
        if (HasJoinedValue(name)) return {};
        const size_t digits = name.find_last_not_of("0123456789.") + 1;  // "-ngl99"
        const std::string base = name.substr(0, digits);
        if (const Synonym* same = FindSynonym(base); same != nullptr && digits < name.size()) {
            return Put(word, same->flag, "=" + name.substr(digits));
        }
        WEFT_TRY(Advise(base));
        WEFT_TRY(Advise(with_two));
        return is(name.substr(0, 2)) ? Status(UnknownFlag(command_, TypedName(full_name_), name))
                                     : Status();
    }

    static Status Put(std::string& word, std::string_view flag, const std::string& value) {
        word = std::string(flag) + value;
        return {};
    }

    // Whether a word with one dash is a group of short flags of this command, the last one with its
    // value attached: "-n8", "-pHello", "-vh".
    bool HasJoinedValue(const std::string& name) const {
        for (size_t i = 1; i < name.size(); ++i) {
            const DescribedFlag* flag = command_.FindFlag(std::string("-") + name[i]);
            if (flag == nullptr) return false;
            if (flag->kind == ValueKind::kNone) continue;
            const bool ends = i + 1 == name.size();
            return ends || flag->kind != ValueKind::kNumber || IsDigit(name[i + 1]) ||
                   !std::isalpha(static_cast<unsigned char>(name[i + 1]));
        }
        return true;
    }

    // Moves `at` to the value. A value without a counterpart is removed with its flag.
    void TranslateValue(size_t& at, bool joined, const std::string& name) {
        const std::string value = joined ? words_[at].substr(name.size() + 1) : words_[at + 1];
        const auto all = ValueSynonyms();
        const auto same = std::ranges::find_if(all, [&](const ValueSynonym& row) {
            return Lists(row.flags, name) && row.other == value;
        });
        const auto flag = words_.begin() + static_cast<ptrdiff_t>(at);
        const size_t words = joined ? 1 : 2;
        if (same == all.end()) {
            at += words - 1;
        } else if (same->value.empty()) {
            words_.erase(flag, flag + static_cast<ptrdiff_t>(words));
            --at;
        } else {
            at += words - 1;
            words_[at] = (joined ? name + "=" : "") + std::string(same->value);
        }
    }

    // Moves the model to the place of MODEL, directly after the command.
    Status MoveModel(size_t& at, size_t equals) {
        WEFT_ASSIGN(const std::string model, Remove(at, equals, "MODEL"));
        words_.insert(words_.begin() + static_cast<ptrdiff_t>(first_), model);
        return {};
    }

    // Removes the flag at `at` and returns its value, which it names `what` in an error.
    Result<std::string> Remove(size_t at, size_t equals, const char* what) {
        const std::string word = words_[at];
        const bool joined = equals < word.size();
        if (!joined && at + 1 == words_.size()) {
            return MakeError(ErrorCode::kUsage, "{} needs a {} after it", word, what);
        }
        std::string value = joined ? word.substr(equals + 1) : words_[at + 1];
        const auto begin = words_.begin() + static_cast<ptrdiff_t>(at);
        words_.erase(begin, begin + (joined ? 1 : 2));
        return value;
    }

    // llama.cpp has a flag for each type of the KV cache: removes it, and keeps its value for
    // PutCacheTypes.
    Status TakeCacheType(size_t& at, const Synonym& same) {
        translated_[NameOf(words_[at])] = std::string(same.flag);
        const size_t equals = std::min(words_[at].find('='), words_[at].size());
        std::string& type = same.taker == Taker::kKeys ? key_type_ : value_type_;
        WEFT_ASSIGN(type, Remove(at, equals, "type"));
        --at;
        return {};
    }

    // Inserts --kv-dtype K,V before word `at`, if there are such flags. f16 is llama.cpp's default.
    void PutCacheTypes(size_t at) {
        if (key_type_.empty() && value_type_.empty()) return;
        const auto type = [](const std::string& typed) { return typed.empty() ? "f16" : typed; };
        words_.insert(words_.begin() + static_cast<ptrdiff_t>(at),
                      "--kv-dtype=" + type(key_type_) + "," + type(value_type_));
    }

    Status Advise(const std::string& name) const {
        for (const Advice& row : AdvicesOf(full_name_)) {
            if (!Lists(row.names, name)) continue;
            return MakeError(ErrorCode::kUsage, "'{}' has no flag {}: {}", TypedName(full_name_),
                             name, row.advice);
        }
        return {};
    }

    const DescribedCommand& command_;
    const std::string full_name_;
    size_t first_;
    std::vector<std::string>& words_;
    std::map<std::string, std::string>& translated_;
    std::string key_type_, value_type_;
};

// Handles a line whose first word is not a command.
Status WithoutCommand(const DescribedCommand& program, std::vector<std::string>& words) {
    const std::string& word = words[0];
    constexpr std::string_view kVersion = "-v -V -version --version";
    if (Lists(kVersion, word)) {
        words[0] = "--version";
        std::erase_if(words, [](const std::string& each) { return Lists("-v -V", each); });
        return {};
    }
    const std::string name = word.substr(0, word.find('='));
    if (LooksLikeFlag(word)) {
        const auto all = Synonyms();
        const bool model = std::ranges::any_of(all, [&](const Synonym& row) {
            return row.flag == kModelWord && Lists(row.names, name);
        });
        if (!model && !Lists("-hf --hf-repo", name)) return {};
        return MakeError(ErrorCode::kUsage,
                         "'weft' has no flag {}: the command comes first, then the model: weft run "
                         "MODEL, or weft serve MODEL",
                         name);
    }
    if (!LooksLikeModel(word)) return {};
    return MakeError(ErrorCode::kUsage,
                     "'{}' has no command '{}', which names a model: weft run {}, or weft serve {}",
                     program.name, word, word, word);
}

}  // namespace

std::string MeantFlag(const DescribedCommand& command, const std::string& full_name,
                      const std::string& typed) {
    const std::string name = NameOf(typed);
    for (const std::string& each : {name, "-" + name}) {  // "--temp" for "-temp"
        if (command.FindFlag(each) != nullptr) return each;
        const Synonym* same = SynonymOf(command, full_name, each);
        if (same != nullptr) return std::string(same->flag);
    }
    return {};
}

Status TranslateCommand(const DescribedCommand& program, std::vector<std::string>& words) {
    if (words.empty()) return {};
    const bool known = program.Find(words[0]) != nullptr;
    const std::string two = words.size() > 1 ? words[0] + "-" + words[1] : "";
    for (const OtherCommand& row : OtherCommands()) {
        const bool one = !known && Lists(row.names, words[0]);
        if (!one && (!row.command.empty() || !Lists(row.names, two))) continue;
        if (row.command.empty()) {
            return MakeError(ErrorCode::kUsage, "there is no 'weft {}': {}",
                             one ? words[0] : words[0] + " " + words[1], row.advice);
        }
        words[0] = row.command;
        return {};
    }
    return {};
}

Status ApplyHabits(const DescribedCommand& program, std::vector<std::string>& words,
                   std::map<std::string, std::string>& translated) {
    if (words.empty()) return {};
    const DescribedCommand* command = &program;
    std::string full_name = program.name;
    size_t first = 0;
    while (first < words.size()) {
        const DescribedCommand* below = command->Find(words[first]);
        if (below == nullptr) break;
        command = below;
        full_name += " " + below->name;
        ++first;
    }
    if (full_name == kTrainRun) full_name = kTrain;
    if (first == 0) return WithoutCommand(program, words);
    return Line(*command, full_name, first, words, translated).Apply();
}

}  // namespace weft::cli
