#include "train/data/data_set.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "base/hash.h"
#include "base/open_files.h"
#include "base/utf8.h"
#include "train/data/data_files.h"
#include "train/data/messages.h"
#include "train/data/preference.h"
#include "train/data/random.h"
#include "train/data/table.h"

namespace weft::train {
namespace {

constexpr std::string_view kRandom = "synthetic:random-tokens";
constexpr uint64_t kRandomCount = 65536;
constexpr int64_t kMostRandomLength = 1 << 24;

using chat::OrderedJson;

// Converts a row of a table to the object that its columns name.
Result<OrderedJson> ObjectOfRow(const RecordFile& file, std::string_view text) {
    WEFT_ASSIGN(std::vector<std::string> fields, ParseRow(text, file.delimiter()));
    const std::vector<std::string>& columns = file.columns();
    if (fields.size() > columns.size()) {
        return MakeError(
            ErrorCode::kCorrupt,
            "{} fields; the first row names {} columns. A field with a delimiter in it "
            "needs quotes around it",
            fields.size(), columns.size());
    }
    OrderedJson record = OrderedJson::object();
    for (size_t i = 0; i < fields.size(); ++i) record[columns[i]] = std::move(fields[i]);
    WEFT_TRY(ReadListsOfTable(record));
    return record;
}

// A record of a plain text is an object with its text.
Result<OrderedJson> ObjectOf(const RecordFile& file, std::string_view text) {
    const bool json = file.form() != RecordForm::kTable && file.form() != RecordForm::kText;
    if (json) return ParseRecordJson(text);
    if (!IsUtf8(text)) {
        return MakeError(ErrorCode::kCorrupt, "not UTF-8; iconv converts other encodings of text");
    }
    if (file.form() == RecordForm::kTable) return ObjectOfRow(file, text);
    return OrderedJson{{"text", text}};
}

std::string_view FormName(const RecordFile& file) {
    switch (file.form()) {
        case RecordForm::kLines: return "JSON lines";
        case RecordForm::kArray: return "a JSON array";
        case RecordForm::kObject: return "a JSON object of records";
        case RecordForm::kStream: return "JSON objects";
        case RecordForm::kTable: return file.delimiter() == '\t' ? "TSV" : "CSV";
        case RecordForm::kText:
            return file.paragraphs() ? "text, a record per paragraph" : "text, a record per line";
    }
    return "";
}

// The first names, and the number of the others.
std::string Shortened(std::span<const std::string> names) {
    const auto shown = names.first(std::min<size_t>(names.size(), 3));
    const size_t more = names.size() - shown.size();
    return fmt::format("{}{}", fmt::join(shown, ", "),
                       more > 0 ? fmt::format(", {} more", more) : "");
}

// The records of all files in order.
class FileSet final : public DataSet {
  public:
    FileSet(std::vector<RecordFile> files, DataFileList list, const Encoder& encoder,
            const DataOptions& options)
        : files_(std::move(files)),
          list_(std::move(list)),
          encoder_(encoder),
          loss_(options.loss),
          form_(options.texts) {
        for (const Part part : {Part::kTrain, Part::kTest}) {
            uint64_t end = 0;
            for (const RecordFile& file : files_) EndsOf(part).push_back(end += file.size(part));
        }
        form_.texts = loss_ == LossKind::kContrastive ? FindTexts() : 1;
    }

    void SetNow(int64_t now_s) override { encoder_.SetNow(now_s); }
    uint64_t size(Part part) const override { return EndsOf(part).back(); }
    std::vector<uint64_t> SizesOf(Part part) const override {
        std::vector<uint64_t> sizes;
        uint64_t begin = 0;
        for (const size_t files : list_.ends) {
            const uint64_t end = files > 0 ? EndsOf(part)[files - 1] : 0;
            sizes.push_back(end - begin);
            begin = end;
        }
        return sizes;
    }
    uint64_t oversized() const override {
        uint64_t all = 0;
        for (const RecordFile& file : files_) all += file.oversized();
        return all;
    }
    std::string first_oversized() const override {
        for (const RecordFile& file : files_) {
            if (file.oversized() > 0) return file.first_oversized();
        }
        return "";
    }
    DataContent content() const override {
        DataContent all{size(Part::kTrain) + size(Part::kTest) + oversized(), 0, 0};
        for (const RecordFile& file : files_) {
            const uint64_t sum = file.checksum();
            all.bytes += file.size_bytes();
            all.checksum = files_.size() == 1
                               ? sum
                               : Checksum64(std::as_bytes(std::span(&sum, 1)), all.checksum);
        }
        return all;
    }
    std::string TakeNote() const override {
        const std::string note = encoder_.TakeNote();
        return note.empty() ? "" : fmt::format("{}: {}", Name(), note);
    }

    Result<Sample> Read(Part part, uint64_t index) const override {
        auto sample = ReadAs(part, index);
        if (sample.ok()) return sample;
        return Placed(part, index, sample.error());
    }
    int64_t texts() const override { return static_cast<int64_t>(form_.texts); }

    Result<OrderedJson> ReadJson(Part part, uint64_t index) const override {
        return ReadObject(part, index);
    }

    std::string Name() const override {
        std::vector<std::string> names;
        for (const RecordFile& file : files_) {
            names.push_back(fmt::format("{} ({})", file.path(), FormName(file)));
        }
        return Shortened(names);
    }
    std::string Summary() const override {
        const auto counted = [](uint64_t count, const char* what) {
            return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
        };
        const auto empty = std::ranges::count_if(files_, [](const RecordFile& file) {
            return file.size(Part::kTrain) + file.size(Part::kTest) + file.oversized() == 0;
        });
        std::string text = fmt::format("{}{}, {}: {}", counted(files_.size(), "file"),
                                       empty > 0 ? fmt::format(" ({} without records)", empty) : "",
                                       counted(content().records, "record"), Name());
        if (!list_.left_out.empty()) {
            text += fmt::format(
                "; left out, as files of another split than the training split: {}. To train on "
                "them, name the files",
                Shortened(list_.left_out));
        }
        return text;
    }
    bool Chooses() const override {
        return list_.from_folder ||
               std::ranges::find(files_, RecordForm::kText, &RecordFile::form) != files_.end();
    }

  private:
    struct Place {
        const RecordFile& file;
        uint64_t index;
    };
    Place PlaceOf(Part part, uint64_t index) const {
        const std::vector<uint64_t>& ends = EndsOf(part);
        const auto at = static_cast<size_t>(std::ranges::upper_bound(ends, index) - ends.begin());
        return {files_[at], at > 0 ? index - ends[at - 1] : index};
    }
    // An error of reading a file has its place.
    Error Placed(Part part, uint64_t index, const Error& error) const {
        if (error.code == ErrorCode::kIo) return error;
        const Place place = PlaceOf(part, index);
        return {error.code, place.file.Where(part, place.index) + ": " + error.message};
    }
    Result<OrderedJson> ReadObject(Part part, uint64_t index) const {
        const Place place = PlaceOf(part, index);
        std::string buffer;
        WEFT_ASSIGN(const std::string_view text, place.file.Read(part, place.index, buffer));
        WEFT_ASSIGN(OrderedJson object, ObjectOf(place.file, text));
        WEFT_TRY(RefuseMedia(object));
        return object;
    }
    Result<Sample> ReadAs(Part part, uint64_t index) const {
        switch (OverOf(loss_)) {
            case LossOver::kTokens: return ReadRecord(part, index);
            case LossOver::kAnswers: return ReadPreference(part, index);
            case LossOver::kCompletions: return ReadPrompt(part, index);
            case LossOver::kVectors: break;
        }
        if (TakesPairs(loss_)) return ReadPreference(part, index);
        WEFT_ASSIGN(const OrderedJson object, ReadObject(part, index));
        return EncodeTexts(encoder_, loss_, form_, object);
    }
    // The texts of the first record that has some.
    size_t FindTexts() const {
        for (const Part part : {Part::kTrain, Part::kTest}) {
            for (uint64_t i = 0; i < size(part); ++i) {
                const auto object = ReadObject(part, i);
                if (!object.ok()) continue;
                const auto texts = TextsOf(*object);
                if (texts.ok()) return texts->size();
            }
        }
        return 2;
    }
    Result<Sample> ReadRecord(Part part, uint64_t index) const {
        WEFT_ASSIGN(OrderedJson object, ReadObject(part, index));
        WEFT_ASSIGN(const Record record, RecordOfObject(std::move(object)));
        return encoder_.Encode(record);
    }
    Result<Sample> ReadPrompt(Part part, uint64_t index) const {
        WEFT_ASSIGN(const OrderedJson object, ReadObject(part, index));
        return EncodePrompt(encoder_, object);
    }
    Result<PreferenceRecord> PreferenceAt(Part part, uint64_t index) const {
        WEFT_ASSIGN(const OrderedJson object, ReadObject(part, index));
        return PreferenceOfObject(object, loss_);
    }
    Result<Sample> ReadPreference(Part part, uint64_t index) const {
        WEFT_ASSIGN(const PreferenceRecord record, PreferenceAt(part, index));
        if (TakesPairs(loss_)) return EncodePreference(encoder_, loss_, record, nullptr);
        // KTO's mismatched answers come from the nearest valid record before in the data.
        const uint64_t all = size(part);
        std::optional<std::pair<uint64_t, Error>> bad;  // the first one
        for (uint64_t back = 1; back < all; ++back) {
            const uint64_t place = (index + all - back) % all;
            const auto before = PreferenceAt(part, place);
            if (!before.ok() && before.error().code == ErrorCode::kIo) return before.error();
            if (!before.ok() && !bad) bad = {place, before.error()};
            if (!before.ok()) continue;
            auto sample = EncodePreference(encoder_, loss_, record, &*before);
            if (sample.ok()) return sample;
            // (The fault may be this record's own.)
            WEFT_TRY(EncodePreference(encoder_, loss_, record, nullptr));
        }
        const std::string text = fmt::format(
            "the only valid record of the {} part; --loss kto needs two or more, because it "
            "compares with the answers to other prompts",
            part == Part::kTrain ? "training" : "test");
        if (!bad) return MakeError(ErrorCode::kUsage, "{}", text);
        const Error other = Placed(part, bad->first, bad->second);
        return MakeError(other.code, "{}. {}", text, other.message);
    }

    std::vector<uint64_t>& EndsOf(Part part) { return part == Part::kTrain ? train_ : test_; }
    const std::vector<uint64_t>& EndsOf(Part part) const {
        return part == Part::kTrain ? train_ : test_;
    }

    std::vector<RecordFile> files_;
    DataFileList list_;
    std::vector<uint64_t> train_, test_;  // cumulative numbers of records by file
    Encoder encoder_;
    LossKind loss_;
    TextForm form_;
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

// Allows the descriptors of all files: two per file, because a file that is unpacked has a lock.
Status AllowFiles(size_t files) {
    constexpr uint64_t kOthers = 1024;  // links, devices, checkpoints
    const uint64_t needed = 2 * files, allowed = AllowOpenFiles(needed + kOthers);
    if (allowed > files + kOthers / 16) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "--data names {} files, and this process may open {} descriptors; expected "
                     "{}. Raise the limit ('ulimit -Hn'), or join the files (cat)",
                     files, allowed, needed + kOthers);
}

// Each path of --data must have a record. (In a folder, a file may be empty: programs write parts
// without records.)
Status CheckRecords(std::span<const std::string> paths, const DataFileList& list,
                    std::span<const RecordFile> files) {
    size_t begin = 0;
    for (size_t i = 0; i < paths.size(); ++i) {
        uint64_t records = 0, bytes = 0;
        for (const RecordFile& file : files.subspan(begin, list.ends[i] - begin)) {
            records += file.size(Part::kTrain) + file.size(Part::kTest) + file.oversized();
            bytes += file.size_bytes();
        }
        if (records == 0) {
            return MakeError(ErrorCode::kCorrupt, "{}: no records in {} bytes", paths[i], bytes);
        }
        begin = list.ends[i];
    }
    return {};
}

// Removes "" or ":NUMBER" from the front of `text` and returns the number.
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

bool IsSynthetic(const std::vector<std::string>& specs) {
    return std::ranges::any_of(
        specs, [](const std::string& spec) { return spec.starts_with("synthetic:"); });
}

Result<std::unique_ptr<DataSet>> DataSet::RandomTokens(const DataOptions& options,
                                                       int32_t vocab_size) {
    const std::string spec = options.specs.empty() ? "" : options.specs.front();
    std::string_view rest = spec;
    if (!rest.starts_with(kRandom) || vocab_size < 1 || options.specs.size() != 1) {
        return MakeError(ErrorCode::kUsage, "{}: expected {}[:LENGTH[:COUNT]]", spec, kRandom);
    }
    rest.remove_prefix(kRandom.size());
    WEFT_ASSIGN(const int64_t length,
                TakeNumber(rest, options.sequence + 1, kMostRandomLength, spec));
    WEFT_ASSIGN(const int64_t count, TakeNumber(rest, kRandomCount, int64_t{1} << 40, spec));
    if (!rest.empty() || !(options.split.test >= 0 && options.split.test < 1)) {
        return MakeError(ErrorCode::kUsage,
                         "{} with a test part of {}; expected {}[:LENGTH[:COUNT]], 0 to below 1",
                         spec, options.split.test, kRandom);
    }
    return std::unique_ptr<DataSet>(std::make_unique<RandomSet>(static_cast<uint64_t>(count),
                                                                length, vocab_size, options.split));
}

Result<std::unique_ptr<DataSet>> DataSet::Open(const DataOptions& options, const Encoder& encoder) {
    if (IsSynthetic(options.specs)) return RandomTokens(options, encoder.vocab_size());
    WEFT_ASSIGN(DataFileList list, DataFiles(options.specs));
    WEFT_TRY(AllowFiles(list.files.size()));
    std::vector<RecordFile> files;
    for (const std::string& path : list.files) {
        WEFT_ASSIGN(RecordFile file, RecordFile::Open(path, options.split));
        files.push_back(std::move(file));
    }
    if (files.empty()) return MakeError(ErrorCode::kUsage, "--data names no file");
    WEFT_TRY(CheckRecords(options.specs, list, files));
    return std::unique_ptr<DataSet>(
        std::make_unique<FileSet>(std::move(files), std::move(list), encoder, options));
}

}  // namespace weft::train
