#include "train/data/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "train/data/packed_ids.h"

namespace weft::train {
namespace {

constexpr size_t kMostErrors = 5;
constexpr size_t kMostKeptLengths = 1 << 20;

bool IsControl(const tokenizer::Tokenizer* tokenizer, int32_t id) {
    return tokenizer != nullptr && tokenizer->IsSpecial(id);
}

// Control tokens are bracketed, so they differ from the same text as plain text.
std::string TokenText(const tokenizer::Tokenizer* tokenizer, int32_t id) {
    if (tokenizer == nullptr) return fmt::format("{} ", id);
    const std::string_view piece = tokenizer->Piece(id);
    return IsControl(tokenizer, id) ? fmt::format("\u27E6{}\u27E7", piece) : std::string(piece);
}

ShownSample Show(const Sample& sample, uint64_t index, const tokenizer::Tokenizer* tokenizer,
                 size_t most_tokens) {
    ShownSample shown{index, sample.tokens.size(), {}};
    const size_t count = std::min(most_tokens, sample.tokens.size());
    for (size_t i = 0; i < count; ++i) {
        const bool loss = i > 0 && sample.loss[i] != 0;
        if (shown.runs.empty() || shown.runs.back().loss != loss) {
            shown.runs.push_back({loss});
        }
        ++shown.runs.back().tokens;
        shown.runs.back().control += IsControl(tokenizer, sample.tokens[i]) ? 1 : 0;
        shown.runs.back().text += TokenText(tokenizer, sample.tokens[i]);
    }
    return shown;
}

class Survey {
  public:
    Survey(const DataSet& data, const tokenizer::Tokenizer* tokenizer,
           const InspectOptions& options)
        : data_(data), tokenizer_(tokenizer), options_(options) {}

    Result<PartReport> Read(Part part, std::vector<ShownSample>* shown) {
        PartReport report;
        report.samples = data_.size(part);
        bins_.assign(33, 0);
        lengths_.clear();
        packed_ = 0;
        const uint64_t most = std::min(report.samples, options_.most_samples);
        for (uint64_t i = 0; i < most; ++i) {
            WEFT_TRY(ReadOne(part, i, report, shown));
        }
        report.read = most + packed_;
        report.samples += packed_;
        for (size_t bin = 0; bin < bins_.size(); ++bin) {
            if (bins_[bin] == 0) continue;
            const uint64_t end = uint64_t{1} << bin;
            report.bins.push_back(
                {end / 2 + (bin > 0 ? 0 : 1), std::max<uint64_t>(1, end - 1), bins_[bin]});
        }
        if (!lengths_.empty()) {
            const auto middle = lengths_.begin() + static_cast<ptrdiff_t>(lengths_.size() / 2);
            std::ranges::nth_element(lengths_, middle);
            report.median = *middle;
        }
        return report;
    }

  private:
    Status ReadOne(Part part, uint64_t index, PartReport& report, std::vector<ShownSample>* shown) {
        auto sample = data_.Read(part, index);
        if (!sample.ok()) {
            if (!options_.loader.skip_bad || sample.error().code == ErrorCode::kIo) {
                return sample.error();
            }
            if (report.bad++ < kMostErrors) report.errors.push_back(sample.error().message);
            return {};
        }
        const std::vector<Sample> samples = SplitPacked(std::move(sample).value());
        for (const Sample& each : samples) Add(each, index + packed_++, report, shown);
        --packed_;
        return {};
    }

    void Add(const Sample& sample, uint64_t index, PartReport& report,
             std::vector<ShownSample>* shown) {
        const uint64_t tokens = sample.tokens.size();
        ++report.usable;
        report.tokens += tokens;
        report.loss_tokens +=
            static_cast<uint64_t>(std::count(sample.loss.begin() + 1, sample.loss.end(), 1));
        report.shortest = report.usable == 1 ? tokens : std::min(report.shortest, tokens);
        report.longest = std::max(report.longest, tokens);
        const uint64_t most = static_cast<uint64_t>(options_.loader.sequence) + 1;
        if (tokens > most) ++report.over_long;
        if (!IsLearnt(sample, most)) ++report.no_loss;
        ++bins_[static_cast<size_t>(std::bit_width(tokens))];
        if (lengths_.size() < kMostKeptLengths) lengths_.push_back(static_cast<uint32_t>(tokens));
        if (shown != nullptr && shown->size() < static_cast<size_t>(std::max(0, options_.show))) {
            shown->push_back(Show(sample, index, tokenizer_, options_.show_tokens));
        }
    }

    // (Samples that --long skip omits count only as over_long.)
    bool IsLearnt(const Sample& sample, uint64_t most) const {
        const LongSamples longs = options_.loader.longs;
        uint64_t left = sample.loss.size();
        if (left > most && longs == LongSamples::kSkip) return true;
        if (longs == LongSamples::kTruncate) left = std::min(left, most);
        const auto end = sample.loss.begin() + static_cast<ptrdiff_t>(left);
        return std::find(sample.loss.begin() + 1, end, 1) != end;
    }

    const DataSet& data_;
    const tokenizer::Tokenizer* tokenizer_;
    const InspectOptions& options_;
    std::vector<uint64_t> bins_;
    std::vector<uint32_t> lengths_;
    uint64_t packed_ = 0;  // samples after the first of their record, so far
};

// Options to read the training part once, one sequence at a time.
LoaderOptions OneByOne(const InspectOptions& options) {
    LoaderOptions one = options.loader;
    one.part = Part::kTrain;
    one.global_batch = 1;
    one.rank = 0;
    one.ranks = 1;
    one.epochs = 1;
    return one;
}

Status CountSequences(Loader& loader, const InspectOptions& options, DataReport& report) {
    uint64_t used = 0;
    for (;;) {
        WEFT_ASSIGN(const std::optional<Batch> batch, loader.Next());
        if (!batch) break;
        ++report.sequences;
        used += static_cast<uint64_t>(batch->sequences.front().used);
    }
    const auto positions =
        static_cast<double>(report.sequences) * static_cast<double>(options.loader.sequence);
    report.filled = positions > 0 ? static_cast<double>(used) / positions : 0;
    return {};
}

double Percent(uint64_t part, uint64_t all) {
    return all == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(all);
}

// One line of text, with JSON escapes for characters that are not printable.
std::string QuotedText(const std::string& text) {
    const nlohmann::json value(text);
    std::string quoted = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return Printable(quoted.substr(1, quoted.size() - 2));
}

void AddPart(std::string& out, std::string_view name, const PartReport& part) {
    if (part.samples == 0) return;
    out += fmt::format("{}: {} samples", name, part.samples);
    if (part.read < part.samples)
        out += fmt::format(", of which the first {} were read", part.read);
    out += fmt::format("\n  tokens   {}, {} to {} a sample, median {}\n", part.tokens,
                       part.shortest, part.longest, part.median);
    out += fmt::format("  loss on  {} tokens ({:.1f} %)\n", part.loss_tokens,
                       Percent(part.loss_tokens, part.tokens));
    if (part.over_long > 0) {
        out += fmt::format("  too long {} samples ({:.1f} %)\n", part.over_long,
                           Percent(part.over_long, part.usable));
    }
    if (part.no_loss > 0) {
        out += fmt::format(
            "  no loss  {} samples ({:.1f} %) have no token to learn, or none after truncation: "
            "training skips them\n",
            part.no_loss, Percent(part.no_loss, part.usable));
    }
    uint64_t highest = 1;
    for (const LengthBin& bin : part.bins) highest = std::max(highest, bin.count);
    for (const LengthBin& bin : part.bins) {
        const auto bar = static_cast<size_t>(bin.count * 40 / highest);
        out += fmt::format("  {:>8} to {:<8} {:>9}  {}\n", bin.least, bin.most, bin.count,
                           std::string(std::max<size_t>(1, bar), '#'));
    }
    if (part.bad > 0) out += fmt::format("  bad      {} records, first of them:\n", part.bad);
    for (const std::string& error : part.errors) out += fmt::format("    {}\n", QuotedText(error));
}

nlohmann::ordered_json PartJson(const PartReport& part) {
    nlohmann::ordered_json bins = nlohmann::ordered_json::array();
    for (const LengthBin& bin : part.bins) {
        bins.push_back({{"least", bin.least}, {"most", bin.most}, {"count", bin.count}});
    }
    return {{"samples", part.samples},
            {"read", part.read},
            {"usable", part.usable},
            {"tokens", part.tokens},
            {"loss_tokens", part.loss_tokens},
            {"shortest", part.shortest},
            {"median", part.median},
            {"longest", part.longest},
            {"over_long", part.over_long},
            {"no_loss", part.no_loss},
            {"bad", part.bad},
            {"errors", part.errors},
            {"lengths", std::move(bins)}};
}

}  // namespace

Result<DataReport> InspectData(const DataSet& data, const tokenizer::Tokenizer* tokenizer,
                               const InspectOptions& options) {
    DataReport report;
    report.name = data.Name();
    report.summary = data.Summary();
    report.sequence = options.loader.sequence;
    report.pack = options.loader.pack;
    // Rejects data that training rejects.
    WEFT_ASSIGN(Loader loader, Loader::Make(data, OneByOne(options)));
    Survey survey(data, tokenizer, options);
    WEFT_ASSIGN(report.train, survey.Read(Part::kTrain, &report.shown));
    WEFT_ASSIGN(report.test, survey.Read(Part::kTest, nullptr));
    if (data.oversized() > 0) {
        report.train.bad += data.oversized();
        report.train.errors.push_back(data.first_oversized());
    }
    for (std::string note; !(note = data.TakeNote()).empty();) {
        report.note += (report.note.empty() ? "" : "\n") + note;
    }
    const bool all = report.train.read == report.train.samples && report.train.loss_tokens > 0;
    if (all) WEFT_TRY(CountSequences(loader, options, report));
    return report;
}

std::string ReportText(const DataReport& report) {
    std::string out = report.summary + "\n";
    for (size_t at = 0; at < report.note.size();) {
        const size_t end = std::min(report.note.find('\n', at), report.note.size());
        out += "note: " + report.note.substr(at, end - at) + "\n";
        at = end + 1;
    }
    AddPart(out, "train", report.train);
    AddPart(out, "test", report.test);
    if (report.sequences > 0) {
        out += fmt::format("an epoch: {} sequences of {}{}, {:.1f} % of their positions used\n",
                           report.sequences, report.sequence,
                           report.pack ? ", packed" : ", one sample each", 100 * report.filled);
    }
    for (const ShownSample& sample : report.shown) {
        out +=
            fmt::format("sample {}, {} tokens ('+': learned; \u27E6 \u27E7: one control token)\n",
                        sample.index + 1, sample.tokens);
        uint64_t shown = 0;
        for (const MaskRun& run : sample.runs) {
            out += fmt::format("  {} {:>6}  {}\n", run.loss ? '+' : '-', run.tokens,
                               QuotedText(run.text));
            shown += run.tokens;
        }
        if (shown < sample.tokens) out += fmt::format("    {:>6}  more\n", sample.tokens - shown);
    }
    return out;
}

nlohmann::ordered_json ReportJson(const DataReport& report) {
    nlohmann::ordered_json shown = nlohmann::ordered_json::array();
    for (const ShownSample& sample : report.shown) {
        nlohmann::ordered_json runs = nlohmann::ordered_json::array();
        for (const MaskRun& run : sample.runs) {
            runs.push_back({{"loss", run.loss},
                            {"tokens", run.tokens},
                            {"control_tokens", run.control},
                            {"text", run.text}});
        }
        shown.push_back(
            {{"sample", sample.index}, {"tokens", sample.tokens}, {"runs", std::move(runs)}});
    }
    return {{"data", report.name},           {"summary", report.summary},
            {"note", report.note},           {"sequence", report.sequence},
            {"pack", report.pack},           {"train", PartJson(report.train)},
            {"test", PartJson(report.test)}, {"sequences", report.sequences},
            {"filled", report.filled},       {"samples", std::move(shown)}};
}

}  // namespace weft::train
