#define PCRE2_CODE_UNIT_WIDTH 8
#include "train/grpo/rewards.h"

#include <pcre2.h>

#include <cmath>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/stacks.h"

namespace weft::train {
namespace {

using chat::OrderedJson;

constexpr uint32_t kMostMatchSteps = 1'000'000, kMostMatchKib = 64 << 10;

// A completion as a command reads it: bytes that are not UTF-8 become U+FFFD. (It may end within a
// character.)
std::string ValidText(std::string_view text) {
    std::string valid;
    for (size_t at = 0; at < text.size();) {
        const size_t length = CodePointLength(text, at);
        valid += length > 0 ? text.substr(at, length) : "\xEF\xBF\xBD";
        at += length > 0 ? length : InvalidLength(text, at);
    }
    return valid;
}

class CommandSource final : public Rewards::Source {
  public:
    CommandSource(const std::string& command, const GrpoOptions& options, RewardCommand::Ends ends)
        : command_(command, options.reward_workers, options.reward_timeout_s, std::move(ends)) {}

    // The record, the completion in the form of the prompt, and its tokens.
    Result<std::vector<double>> Score(std::span<const Judged> completions) override {
        std::vector<std::string> lines;
        for (const Judged& each : completions) {
            OrderedJson line = *each.record;
            const auto prompt = line.find("prompt");
            const bool text = prompt != line.end() && prompt->is_string();
            if (text) {
                line["completion"] = each.text;
            } else {
                line["completion"] = {{{"role", "assistant"}, {"content", each.text}}};
            }
            line["completion_ids"] = std::vector<int32_t>(each.tokens.begin(), each.tokens.end());
            lines.push_back(line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
        }
        return command_.Score(lines);
    }

  private:
    RewardCommand command_;
};

class RegexSource final : public Rewards::Source {
  public:
    static Result<std::unique_ptr<Rewards::Source>> Make(const std::string& pattern) {
        int error = 0;
        PCRE2_SIZE at = 0;
        auto made = std::make_unique<RegexSource>();
        made->code_.reset(::pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                                          pattern.size(), PCRE2_UTF | PCRE2_UCP, &error, &at,
                                          nullptr));
        if (made->code_ == nullptr) {
            PCRE2_UCHAR text[256] = {};
            ::pcre2_get_error_message(error, text, sizeof(text));
            return MakeError(ErrorCode::kUsage, "--reward-regex '{}': {} at byte {}", pattern,
                             reinterpret_cast<const char*>(text), at);
        }
        made->context_.reset(::pcre2_match_context_create(nullptr));
        ::pcre2_set_match_limit(made->context_.get(), kMostMatchSteps);
        ::pcre2_set_heap_limit(made->context_.get(), kMostMatchKib);
        made->match_.reset(::pcre2_match_data_create_from_pattern(made->code_.get(), nullptr));
        made->FindNames();
        return std::unique_ptr<Rewards::Source>(std::move(made));
    }

    // (A match that takes too many steps counts as no match.)
    Result<std::vector<double>> Score(std::span<const Judged> completions) override {
        std::vector<double> rewards;
        for (const Judged& each : completions) {
            const std::string text = ValidText(each.text);
            const int found = ::pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                            text.size(), 0, 0, match_.get(), context_.get());
            rewards.push_back(found > 0 && HasMembers(*each.record, text) ? 1 : 0);
        }
        return rewards;
    }

  private:
    struct Free {
        void operator()(pcre2_code* code) const { ::pcre2_code_free(code); }
        void operator()(pcre2_match_data* match) const { ::pcre2_match_data_free(match); }
        void operator()(pcre2_match_context* context) const { ::pcre2_match_context_free(context); }
    };

    void FindNames() {
        uint32_t count = 0, size = 0;
        PCRE2_SPTR table = nullptr;
        ::pcre2_pattern_info(code_.get(), PCRE2_INFO_NAMECOUNT, &count);
        ::pcre2_pattern_info(code_.get(), PCRE2_INFO_NAMEENTRYSIZE, &size);
        ::pcre2_pattern_info(code_.get(), PCRE2_INFO_NAMETABLE, &table);
        for (uint32_t i = 0; i < count; ++i, table += size) {
            const auto number = static_cast<size_t>(table[0] << 8 | table[1]);
            names_.emplace_back(reinterpret_cast<const char*>(table + 2), number);
        }
    }

    bool HasMembers(const OrderedJson& record, std::string_view text) const {
        const PCRE2_SIZE* const ends = ::pcre2_get_ovector_pointer(match_.get());
        for (const auto& [name, group] : names_) {
            const size_t begin = ends[2 * group], end = ends[2 * group + 1];
            if (begin == PCRE2_UNSET || end < begin) return false;
            const auto member = record.find(name);
            if (member == record.end()) return false;
            const std::string wanted =
                member->is_string() ? member->get<std::string>() : member->dump();
            if (Trim(wanted) != Trim(text.substr(begin, end - begin))) return false;
        }
        return true;
    }

    std::unique_ptr<pcre2_code, Free> code_;
    std::unique_ptr<pcre2_match_context, Free> context_;
    std::unique_ptr<pcre2_match_data, Free> match_;
    std::vector<std::pair<std::string, size_t>> names_;  // of groups, and their numbers
};

class SchemaSource final : public Rewards::Source {
  public:
    static Result<std::unique_ptr<Rewards::Source>> Make(const std::string& path) {
        WEFT_ASSIGN(const std::string text, ReadTextFile(path, grammar::kMostSchemaBytes));
        auto made = std::make_unique<SchemaSource>();
        auto compiled = grammar::GrammarFromJsonSchemaText(text);
        if (!compiled.ok()) {
            return MakeError(compiled.error().code, "--reward-json-schema {}: {}", path,
                             compiled.error().message);
        }
        made->grammar_ = *std::move(compiled);
        return std::unique_ptr<Rewards::Source>(std::move(made));
    }

    // (A text in which the grammar is too ambiguous counts as wrong.)
    Result<std::vector<double>> Score(std::span<const Judged> completions) override {
        std::vector<double> rewards;
        for (const Judged& each : completions) {
            const auto follows = grammar::Matches(*grammar_, Trim(std::string_view(each.text)));
            rewards.push_back(follows.ok() && *follows ? 1 : 0);
        }
        return rewards;
    }

  private:
    grammar::GrammarPtr grammar_;
};

}  // namespace

Result<Rewards> Rewards::Make(const GrpoOptions& options, RewardCommand::Ends ends) {
    Rewards rewards;
    for (const std::string& command : options.commands) {
        rewards.sources_.push_back(std::make_unique<CommandSource>(command, options, ends));
    }
    for (const std::string& pattern : options.regexes) {
        WEFT_ASSIGN(auto source, RegexSource::Make(pattern));
        rewards.sources_.push_back(std::move(source));
    }
    for (const std::string& path : options.schemas) {
        WEFT_ASSIGN(auto source, SchemaSource::Make(path));
        rewards.sources_.push_back(std::move(source));
    }
    rewards.weights_ = options.weights;
    rewards.weights_.resize(options.rewards(), 1);
    return rewards;
}

Result<std::vector<std::vector<double>>> Rewards::Score(std::span<const Judged> completions) {
    std::vector<std::vector<double>> all;
    for (const auto& source : sources_) {
        WEFT_ASSIGN(std::vector<double> own, source->Score(completions));
        all.push_back(std::move(own));
    }
    return all;
}

std::vector<double> Rewards::SumsOf(std::span<const std::vector<double>> values) const {
    std::vector<double> sums(values.empty() ? 0 : values.front().size(), NAN);
    for (size_t source = 0; source < values.size(); ++source) {
        for (size_t i = 0; i < sums.size(); ++i) {
            const double reward = values[source][i];
            if (std::isnan(reward)) continue;
            sums[i] = (std::isnan(sums[i]) ? 0 : sums[i]) + weights_[source] * reward;
        }
    }
    return sums;
}

std::vector<std::string> RewardNames(const GrpoOptions& options) {
    std::vector<std::string> names;
    const auto add = [&](const char* kind, size_t count) {
        for (size_t i = 0; i < count; ++i) {
            names.push_back(i == 0 ? fmt::format("rewards/{}", kind)
                                   : fmt::format("rewards/{}_{}", kind, i + 1));
        }
    };
    add("cmd", options.commands.size());
    add("regex", options.regexes.size());
    add("json_schema", options.schemas.size());
    add("model", options.models.size());
    return names;
}

}  // namespace weft::train
