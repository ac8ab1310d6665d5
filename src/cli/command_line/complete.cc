#include "cli/command_line/complete.h"

#include <algorithm>
#include <set>

#include "base/printable.h"
#include "cli/command_line/shorthand.h"
#include "cli/terminal/output.h"
#include "hub/inventory.h"
#include "hub/short_names.h"

namespace weft::cli {
namespace {

constexpr size_t kMostAbout = 72;  // characters of a candidate's description

// The first clause of a help text, on one line.
std::string Brief(const std::string& help) {
    std::string text = help.substr(0, help.find_first_of(";\n"));
    if (text.size() > kMostAbout) {
        const size_t blank = text.rfind(' ', kMostAbout);
        text = text.substr(0, blank == std::string::npos ? kMostAbout : blank) + " ...";
    }
    return text;
}

std::string Dashed(const std::string& word) {
    std::string name = word.substr(0, word.find('='));
    std::ranges::replace(name, '_', '-');
    return name;
}

// The position of the last word on a command line.
class Place {
  public:
    explicit Place(const DescribedCommand& program) : program_(&program), at_(&program) {}

    void Take(const std::string& word) {
        if (only_values_) {
            ++values_;
        } else if (word == "--") {
            TakeDashes();
        } else if (word.size() > 1 && word[0] == '-') {
            TakeFlag(word);
        } else if (flag_ != nullptr) {
            if (!flag_->follow) flag_ = nullptr;
        } else {
            TakeWord(word);
        }
    }

    const DescribedCommand& command() const { return *at_; }
    const DescribedFlag* flag() const { return flag_; }  // its value follows
    bool may_name_command() const { return !only_values_ && values_ == 0 && !fallen_; }
    bool may_be_flag() const { return !only_values_; }
    bool Given(const DescribedFlag& flag) const { return given_.contains(&flag); }
    // The command that a line without a command name means; null: none.
    const DescribedCommand* implied() const { return at_->Find(ImpliedBy(at_->name)); }
    // The next positional value; null: none.
    const DescribedFlag* value(const DescribedCommand& command) const {
        size_t left = values_;
        for (const DescribedFlag& flag : command.flags) {
            if (!flag.positional) continue;
            if (left == 0 || flag.many) return &flag;
            --left;
        }
        return nullptr;
    }

  private:
    // In `weft submit ... -- train ...` a whole command line follows; elsewhere values follow.
    void TakeDashes() {
        flag_ = nullptr;
        if (at_->name == "submit") {
            at_ = program_;
            given_.clear();
            values_ = 0;
        } else {
            only_values_ = true;
        }
    }

    void TakeFlag(const std::string& word) {
        const DescribedFlag* flag = at_->FindFlag(Dashed(word));
        if (flag == nullptr && values_ == 0 && implied() != nullptr) {
            at_ = implied();
            flag = at_->FindFlag(Dashed(word));
        }
        flag_ = nullptr;
        if (flag == nullptr) return;
        given_.insert(flag);
        if (flag->kind != ValueKind::kNone && word.find('=') == word.npos) flag_ = flag;
    }

    void TakeWord(const std::string& word) {
        if (values_ == 0 && !fallen_) {
            if (const DescribedCommand* next = at_->Find(word); next != nullptr) {
                at_ = next;
                return;
            }
            if (implied() != nullptr) at_ = implied();
        }
        fallen_ = true;
        ++values_;
    }

    const DescribedCommand* program_;
    const DescribedCommand* at_;
    const DescribedFlag* flag_ = nullptr;
    std::set<const DescribedFlag*> given_;
    size_t values_ = 0;  // number of positional values so far
    bool only_values_ = false, fallen_ = false;
};

class Offer {
  public:
    explicit Offer(const std::string& begun) : begun_(begun) {}

    void Add(const std::string& word, const std::string& about = {}) {
        if (word.starts_with(begun_)) result_.candidates.push_back({word, about});
    }

    // before: the part of the word before the value ("--overlap=", or "f16," of a list).
    void AddValues(const DescribedFlag& flag, std::string before) {
        const size_t comma = begun_.rfind(',');
        if (flag.many && comma != std::string::npos && comma + 1 > before.size()) {
            before = begun_.substr(0, comma + 1);
        }
        switch (flag.kind) {
            case ValueKind::kNone:
            case ValueKind::kNumber: break;
            case ValueKind::kWords:
                for (const std::string& word : flag.words) Add(before + word);
                break;
            case ValueKind::kModel: AddModels(before); break;
            case ValueKind::kFile:
            case ValueKind::kText: result_.paths = Completion::Paths::kFiles; break;
            case ValueKind::kFolder: result_.paths = Completion::Paths::kFolders; break;
        }
    }

    void AddFlags(const DescribedCommand& command, const Place& place) {
        for (const DescribedFlag& flag : command.flags) {
            if (flag.positional || (place.Given(flag) && !flag.many)) continue;
            for (const std::string& name : flag.names) {
                // "-" alone offers all names; after "--", short names are rarely useful.
                Add(name, Brief(flag.help));
            }
        }
    }

    void AddCommands(const DescribedCommand& command) {
        for (const DescribedCommand& below : command.commands) Add(below.name, Brief(below.about));
    }

    Completion Take() { return std::move(result_); }

  private:
    void AddModels(const std::string& before) {
        result_.paths = Completion::Paths::kFiles;
        const auto config = hub::ConfigFromEnvironment();
        const auto held = config.ok() ? hub::ListCached(*config)
                                      : Result<std::vector<hub::CachedModel>>(config.error());
        if (held.ok()) {
            for (const hub::CachedModel& model : *held) {
                std::string name = model.spec.Text();
                // Skip names that contain terminal escapes.
                if (Printable(name) != name) continue;
                Add(before + name, BytesText(model.bytes));
                if (name.starts_with("hf:")) Add(before + name.substr(3), BytesText(model.bytes));
            }
        }
        if (begun_.size() == before.size()) return;
        for (const hub::ShortName& name : hub::ShortNames()) {
            Add(before + std::string(name.name), std::string(name.model));
        }
    }

    std::string begun_;
    Completion result_;
};

// "--flag=va": completes the values of the flag.
void AddJoined(const Place& place, const std::string& begun, Offer& offer) {
    const std::string name = Dashed(begun);
    const DescribedFlag* flag = place.command().FindFlag(name);
    if (flag == nullptr && place.implied() != nullptr) flag = place.implied()->FindFlag(name);
    if (flag != nullptr) offer.AddValues(*flag, begun.substr(0, begun.find('=') + 1));
}

}  // namespace

Completion Complete(const DescribedCommand& program, const std::vector<std::string>& words) {
    Place place(program);
    for (size_t i = 0; i + 1 < words.size(); ++i) place.Take(words[i]);
    const std::string begun = words.empty() ? "" : words.back();
    Offer offer(begun);
    const DescribedCommand& command = place.command();
    const DescribedCommand* implied = place.implied();
    if (place.may_be_flag() && begun.starts_with("-")) {
        if (begun.find('=') != begun.npos) {
            AddJoined(place, begun, offer);
            return offer.Take();
        }
        offer.AddFlags(command, place);
        if (implied != nullptr) offer.AddFlags(*implied, place);
        return offer.Take();
    }
    if (place.flag() != nullptr) {
        offer.AddValues(*place.flag(), "");
        return offer.Take();
    }
    if (place.may_name_command()) offer.AddCommands(command);
    const DescribedFlag* value = place.value(implied == nullptr ? command : *implied);
    if (value != nullptr) offer.AddValues(*value, "");
    return offer.Take();
}

void PrintCompletion(const Completion& completion) {
    std::set<std::string> said;
    for (const Candidate& candidate : completion.candidates) {
        if (said.insert(candidate.word).second) {
            PrintOut("{}\t{}\n", candidate.word, candidate.about);
        }
    }
    switch (completion.paths) {
        case Completion::Paths::kNone: PrintOut(":none\n"); break;
        case Completion::Paths::kFiles: PrintOut(":files\n"); break;
        case Completion::Paths::kFolders: PrintOut(":folders\n"); break;
    }
}

}  // namespace weft::cli
