#include "train/data/data_set.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "train/data/random.h"

namespace weft::train {
namespace {

constexpr std::string_view kRandom = "synthetic:random-tokens";
constexpr uint64_t kRandomCount = 65536;
constexpr int64_t kMostRandomLength = 1 << 24;

class FileSet final : public DataSet {
  public:
    FileSet(RecordFile file, const Encoder& encoder) : file_(std::move(file)), encoder_(encoder) {}

    uint64_t size(Part part) const override { return file_.size(part); }
    uint64_t oversized() const override { return file_.oversized(); }
    std::string first_oversized() const override { return file_.first_oversized(); }
    DataContent content() const override {
        const uint64_t records =
            file_.size(Part::kTrain) + file_.size(Part::kTest) + file_.oversized();
        return {records, file_.size_bytes(), file_.checksum()};
    }
    std::string TakeNote() const override {
        const std::string note = encoder_.TakeNote();
        return note.empty() ? "" : fmt::format("{}: {}", file_.path(), note);
    }

    Result<Sample> Read(Part part, uint64_t index) const override {
        std::string buffer;
        WEFT_ASSIGN(const std::string_view text, file_.Read(part, index, buffer));
        const auto placed = [&](const Error& error) {
            return Error{error.code, file_.Where(part, index) + ": " + error.message};
        };
        const auto record = ParseRecord(text);
        if (!record.ok()) return placed(record.error());
        auto sample = encoder_.Encode(*record);
        if (!sample.ok()) return placed(sample.error());
        return sample;
    }

    std::string Name() const override {
        switch (file_.form()) {
            case RecordFile::Form::kLines: return file_.path() + " (JSON lines)";
            case RecordFile::Form::kArray: return file_.path() + " (a JSON array)";
            case RecordFile::Form::kObject: return file_.path() + " (a JSON object of records)";
        }
        return file_.path();
    }

  private:
    RecordFile file_;
    Encoder encoder_;
};

class RandomSet final : public DataSet {
  public:
    RandomSet(uint64_t count, int64_t length, int32_t vocab_size, const SplitOptions& split)
        : count_(count),
          length_(length),
          vocab_size_(vocab_size),
          seed_(split.seed),
          test_(static_cast<uint64_t>(std::llround(static_cast<double>(count) * split.test))) {}

    uint64_t size(Part part) const override { return part == Part::kTest ? test_ : count_ - test_; }

    Result<Sample> Read(Part part, uint64_t index) const override {
        const uint64_t number = part == Part::kTest ? count_ - test_ + index : index;
        Sample sample;
        sample.tokens.reserve(static_cast<size_t>(length_));
        const uint64_t base = Mix(seed_ ^ Mix(number));
        for (uint64_t at = 0; at < static_cast<uint64_t>(length_); ++at) {
            const double unit = UnitOf(Mix(base + at));
            sample.tokens.push_back(static_cast<int32_t>(unit * vocab_size_));
        }
        sample.loss.assign(sample.tokens.size(), 1);
        return sample;
    }

    DataContent content() const override {
        const auto length = static_cast<uint64_t>(length_);
        const auto vocab = static_cast<uint64_t>(vocab_size_);
        return {count_, 0, Mix(seed_ ^ Mix(length ^ Mix(vocab)))};
    }

    std::string Name() const override {
        return fmt::format("{} samples of {} random tokens", count_, length_);
    }

  private:
    uint64_t count_;
    int64_t length_;
    int32_t vocab_size_;
    uint64_t seed_, test_;
};

// "" or ":NUMBER" at the front of `text`, which it is cut off from.
Result<int64_t> TakeNumber(std::string_view& text, int64_t fallback, int64_t most,
                           std::string_view spec) {
    if (text.empty()) return fallback;
    int64_t number = 0;
    const char* begin = text.data() + 1;
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
    if (text[0] != ':' || error != std::errc() || number < 2 || number > most) {
        return MakeError(ErrorCode::kUsage,
                         "{}: expected {}[:LENGTH[:COUNT]], numbers from 2 to {}", spec, kRandom,
                         most);
    }
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return number;
}

}  // namespace

Result<std::unique_ptr<DataSet>> DataSet::RandomTokens(const DataOptions& options,
                                                       int32_t vocab_size) {
    std::string_view rest = options.spec;
    if (!rest.starts_with(kRandom) || vocab_size < 1) {
        return MakeError(ErrorCode::kUsage, "{}: expected {}[:LENGTH[:COUNT]]", options.spec,
                         kRandom);
    }
    rest.remove_prefix(kRandom.size());
    WEFT_ASSIGN(const int64_t length,
                TakeNumber(rest, options.sequence + 1, kMostRandomLength, options.spec));
    WEFT_ASSIGN(const int64_t count,
                TakeNumber(rest, kRandomCount, int64_t{1} << 40, options.spec));
    if (!rest.empty() || !(options.split.test >= 0 && options.split.test < 1)) {
        return MakeError(ErrorCode::kUsage,
                         "{} with a test part of {}; expected {}[:LENGTH[:COUNT]], 0 to below 1",
                         options.spec, options.split.test, kRandom);
    }
    return std::unique_ptr<DataSet>(std::make_unique<RandomSet>(static_cast<uint64_t>(count),
                                                                length, vocab_size, options.split));
}

Result<std::unique_ptr<DataSet>> DataSet::Open(const DataOptions& options, const Encoder& encoder) {
    if (options.spec.starts_with("synthetic:")) return RandomTokens(options, encoder.vocab_size());
    WEFT_ASSIGN(RecordFile file, RecordFile::Open(options.spec, options.split));
    return std::unique_ptr<DataSet>(std::make_unique<FileSet>(std::move(file), encoder));
}

}  // namespace weft::train
