#include "train/data/loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/on_threads.h"
#include "hw/cpu.h"
#include "train/data/packed_ids.h"
#include "train/data/random.h"

namespace weft::train {
namespace {

constexpr uint64_t kWindowSequences = 64;
constexpr size_t kWindowSamples = 65536;
constexpr int64_t kMostSequence = 1 << 24;
constexpr uint64_t kAheadTokens = 1 << 19, kAheadRecords = 1 << 12;
constexpr int64_t kMostBatch = 1 << 24;

bool Learns(const Sample& sample) {
    return std::find(sample.loss.begin() + 1, sample.loss.end(), 1) != sample.loss.end();
}

Status Check(const DataSet& data, const LoaderOptions& options) {
    if (options.sequence < 1 || options.sequence > kMostSequence) {
        return MakeError(ErrorCode::kUsage, "sequences of {} tokens; expected 1 to {}",
                         options.sequence, kMostSequence);
    }
    if (options.global_batch < 1 || options.global_batch > kMostBatch || options.ranks < 1 ||
        options.rank < 0 || options.rank >= options.ranks) {
        return MakeError(ErrorCode::kUsage,
                         "a batch of {} sequences for rank {} of {}; expected 1 to {} for a rank "
                         "below their number",
                         options.global_batch, options.rank, options.ranks, kMostBatch);
    }
    if (data.oversized() > 0 && !options.skip_bad) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}; at most {} are read. --skip-bad leaves it out",
                         data.first_oversized(), RecordFile::kMostRecordBytes);
    }
    if (data.size(options.part) == 0) {
        const std::string why =
            data.oversized() > 0 ? fmt::format("; {} of {} bytes and more were left out",
                                               data.oversized(), RecordFile::kMostRecordBytes + 1)
                                 : "";
        return MakeError(ErrorCode::kUsage, "{}: no samples in the {} part{}", data.Name(),
                         options.part == Part::kTrain ? "training" : "test", why);
    }
    return {};
}

}  // namespace

bool IsBadRecord(const Error& error) {
    return error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kUnsupported ||
           error.code == ErrorCode::kUsage;
}

Result<Loader> Loader::Make(const DataSet& data, const LoaderOptions& options) {
    WEFT_TRY(Check(data, options));
    Loader loader(data, options);
    loader.counts_.bad = data.oversized();
    if (data.oversized() > 0) loader.counts_.first_bad = data.first_oversized();
    return loader;
}

uint64_t Loader::Fingerprint() const {
    return FingerprintWith(options_.skip_bad);
}

bool Loader::MayGoOnFrom(uint64_t fingerprint) const {
    return fingerprint == Fingerprint() ||
           (options_.skip_bad && fingerprint == FingerprintWith(false));
}

uint64_t Loader::FingerprintWith(bool skip_bad) const {
    uint64_t mixed = 0;
    for (const uint64_t part : {data_->size(options_.part), static_cast<uint64_t>(options_.part),
                                static_cast<uint64_t>(options_.sequence), uint64_t{options_.pack},
                                uint64_t{options_.shuffle}, static_cast<uint64_t>(options_.longs),
                                uint64_t{skip_bad}, options_.seed}) {
        mixed = Mix(mixed ^ part);
    }
    return options_.mixture ? Mix(mixed ^ options_.mixture->Fingerprint()) : mixed;
}

Status Loader::Seek(const Cursor& cursor) {
    if (cursor.index >= data_->size(options_.part)) {
        return MakeError(
            ErrorCode::kUsage,
            "training cannot continue at sample {} of epoch {}: {} has {} samples. Is it "
            "the same file, with the same split?",
            cursor.index, cursor.epoch, data_->Name(), data_->size(options_.part));
    }
    cursor_ = cursor;
    found_ = cursor.index > 0 || cursor.given > 0;
    filled_ = false;
    if (cursor.given == 0) return {};
    WEFT_TRY(FillWindow());
    if (cursor.given > window_.size()) {
        return MakeError(ErrorCode::kUsage,
                         "training cannot continue at sequence {} of a window of {}: the data or "
                         "the sequence length changed",
                         cursor.given, window_.size());
    }
    return {};
}

Result<std::optional<Batch>> Loader::Next() {
    Batch batch;
    const int64_t all = options_.global_batch;
    const int64_t begin = all * options_.rank / options_.ranks;
    const int64_t end = all * (options_.rank + 1) / options_.ranks;
    batch.first = static_cast<uint64_t>(begin);
    batch.all = static_cast<uint64_t>(all);
    for (int64_t i = 0; i < all; ++i) {
        WEFT_ASSIGN(std::optional<Sequence> next, NextSequence());
        if (next) {
            Count(*next, batch);
        } else {
            if (batch.global_sequences == 0) return std::optional<Batch>();
            next = Build({});
        }
        if (i >= begin && i < end) batch.sequences.push_back(*std::move(next));
    }
    return std::optional<Batch>(std::move(batch));
}

void Loader::Count(const Sequence& sequence, Batch& batch) const {
    const auto targets = [&](size_t begin, size_t end) {
        return static_cast<uint64_t>(
            std::count_if(sequence.targets.begin() + static_cast<ptrdiff_t>(begin),
                          sequence.targets.begin() + static_cast<ptrdiff_t>(end),
                          [](int32_t id) { return id >= 0; }));
    };
    ++batch.global_sequences;
    batch.global_targets += targets(0, sequence.targets.size());
    for (size_t i = 0; i < sequence.roles.size(); ++i) {
        ++batch.samples_of[static_cast<size_t>(sequence.roles[i])];
        if (sequence.roles[i] != SampleRole::kChosen) continue;
        const bool last = i + 1 == sequence.roles.size();
        batch.chosen_targets +=
            targets(static_cast<size_t>(sequence.begins[i]),
                    static_cast<size_t>(last ? sequence.used : sequence.begins[i + 1]));
    }
}

Result<std::optional<Sequence>> Loader::NextSequence() {
    for (;;) {
        if (options_.epochs > 0 && cursor_.epoch >= options_.epochs) {
            return std::optional<Sequence>();
        }
        if (!filled_) WEFT_TRY(FillWindow());
        const bool has = cursor_.given < window_.size();
        std::optional<Sequence> sequence;
        if (has) sequence = Build(window_[cursor_.given++]);
        found_ = found_ || has;
        if (cursor_.given >= window_.size()) {
            cursor_.index = window_end_;
            cursor_.given = 0;
            filled_ = false;
            if (cursor_.index >= data_->size(options_.part)) {
                if (!found_) return NothingToLearn();
                if (!first_epoch_) first_epoch_ = counts_;
                cursor_.index = 0;
                ++cursor_.epoch;
                found_ = false;
            }
        }
        if (has) return sequence;
    }
}

Error Loader::NothingToLearn() const {
    std::vector<std::string> whys;
    const auto add = [&](uint64_t count, const std::string& why) {
        if (count > 0) whys.push_back(fmt::format("{} {}", count, why));
    };
    const std::string length = fmt::format("--seq-len {}", options_.sequence);
    add(counts_.bad, "bad (first: " + counts_.first_bad + ")");
    add(counts_.too_long, "longer than " + length);
    add(counts_.cut_off, "whose learned tokens all lie beyond " + length);
    add(counts_.no_loss - counts_.cut_off, "without a token to learn");
    std::string next;
    if (counts_.needed > 0) {
        next = fmt::format(". The shortest needs --seq-len {}{}", counts_.needed,
                           options_.may_split ? "; or use --long split" : "");
    }
    return MakeError(ErrorCode::kCorrupt, "{}: nothing to learn in {} samples: {}{}", data_->Name(),
                     cursor_.index, fmt::join(whys, ", "), next);
}

// Reads all samples of one window, from cursor_.index on.
Status Loader::FillWindow() {
    const uint64_t size = data_->size(options_.part);
    const uint64_t most =
        options_.pack ? kWindowSequences * static_cast<uint64_t>(options_.sequence) : 1;
    std::vector<Piece> pieces;
    uint64_t positions = 0;
    window_end_ = cursor_.index;
    if (options_.shuffle && (!order_ || order_epoch_ != cursor_.epoch)) {
        order_.emplace(size, Mix(options_.seed ^ Mix(cursor_.epoch)));
        order_epoch_ = cursor_.epoch;
    }
    while (window_end_ < size && positions < most && pieces.size() < kWindowSamples) {
        if (cores_.size() > 1) WEFT_TRY(ReadAhead());
        WEFT_TRY(AddSample(RecordAt(window_end_++), pieces, positions));
        if (!ahead_.empty()) ahead_.pop_front();
        ++ahead_begin_;
    }
    window_ = PackPieces(std::move(pieces));
    filled_ = true;
    return {};
}

// The record at a place in the order of the epoch.
uint64_t Loader::RecordAt(uint64_t place) const {
    if (options_.shuffle) place = (*order_)(place);
    return options_.mixture ? (*options_.mixture)(cursor_.epoch, place) : place;
}

// Reads the samples from window_end_ on, on all cores, if none of them is read.
Status Loader::ReadAhead() {
    if (ahead_epoch_ != cursor_.epoch || ahead_begin_ != window_end_) ahead_.clear();
    ahead_epoch_ = cursor_.epoch;
    ahead_begin_ = window_end_;
    if (!ahead_.empty()) return {};
    const uint64_t threads = cores_.size();
    const uint64_t mean = ahead_tokens_ / std::max<uint64_t>(ahead_records_, 1);
    const uint64_t fitting = kAheadTokens / std::max<uint64_t>(mean, 1);
    const uint64_t most =
        ahead_records_ == 0 ? threads : std::clamp(fitting, threads, kAheadRecords);
    const auto count =
        static_cast<size_t>(std::min(most, data_->size(options_.part) - window_end_));
    std::vector<std::optional<Result<Sample>>> read(count);
    const PinnedThread pinned(cores_);
    WEFT_TRY(OnThreads(threads, count, [&](size_t i) -> Status {
        const uint64_t record = RecordAt(window_end_ + i);
        const bool known = !known_.empty() && known_[record] != kUnknown;
        if (!known) read[i].emplace(data_->Read(options_.part, record));
        return {};
    }));
    for (auto& sample : read) {
        ++ahead_records_;
        if (sample && sample->ok()) ahead_tokens_ += (*sample)->tokens.size();
        ahead_.push_back(std::move(sample));
    }
    return {};
}

// The sample of the record at window_end_ - 1.
Result<Sample> Loader::TakeRead(uint64_t index) {
    if (ahead_.empty() || !ahead_.front()) return data_->Read(options_.part, index);
    return *std::exchange(ahead_.front(), std::nullopt);
}

void Loader::CountOnly() {
    WEFT_CHECK(options_.epochs > 0);
    counts_only_ = true;
    if (cursor_.epoch + 1 < options_.epochs) known_.assign(data_->size(options_.part), kUnknown);
}

Status Loader::AddSample(uint64_t index, std::vector<Piece>& pieces, uint64_t& positions) {
    if (!counts_only_) return ReadRecord(index, pieces, positions);
    if (AddKnown(index, pieces, positions)) return {};
    const size_t first = pieces.size();
    const uint64_t before = positions;
    WEFT_TRY(ReadRecord(index, pieces, positions));
    Remember(index, positions - before, std::span(pieces).subspan(first));
    return {};
}

void Loader::Remember(uint64_t index, uint64_t positions, std::span<Piece> made) {
    for (Piece& piece : made) piece.sample = {};
    if (known_.empty()) return;
    WEFT_CHECK(positions < UINT32_MAX);
    known_[index] = kLeftOut + static_cast<uint32_t>(positions);
    const auto most = static_cast<uint64_t>(options_.sequence);
    uint64_t left = positions;
    const bool whole = std::ranges::all_of(made, [&](const Piece& piece) {
        const bool next = piece.positions == std::min(most, left);
        left -= std::min<uint64_t>(piece.positions, left);
        return next;
    });
    if (whole && left == 0) return;
    for (const Piece& piece : made) {
        partly_[index].push_back(static_cast<uint32_t>(piece.positions));
    }
}

// Adds the sample's pieces with the sizes of its first read.
bool Loader::AddKnown(uint64_t index, std::vector<Piece>& pieces, uint64_t& positions) const {
    if (known_.empty() || known_[index] == kUnknown) return false;
    const uint64_t all = known_[index] - kLeftOut;
    positions += all;
    if (const auto partly = partly_.find(index); partly != partly_.end()) {
        for (const uint32_t each : partly->second) pieces.push_back({{}, pieces.size(), each});
        return true;
    }
    const auto most = static_cast<uint64_t>(options_.sequence);
    for (uint64_t at = 0; at < all; at += most) {
        pieces.push_back({{}, pieces.size(), std::min(most, all - at)});
    }
    return true;
}

Status Loader::ReadRecord(uint64_t index, std::vector<Piece>& pieces, uint64_t& positions) {
    auto sample = TakeRead(index);
    if (!sample.ok()) {
        if (!options_.skip_bad || !IsBadRecord(sample.error())) return sample.error();
        if (counts_.bad++ == 0) counts_.first_bad = sample.error().message;
        return {};
    }
    if (!sample->roles.empty()) {
        const size_t first = pieces.size();
        TakePreference(std::move(sample).value(), pieces, positions);
        if (pieces.size() > first) pieces.back().record = index;
        return {};
    }
    std::vector<Sample> samples = SplitPacked(std::move(sample).value());
    counts_.packed += samples.size() - 1;
    for (Sample& each : samples) TakeSample(std::move(each), pieces, positions);
    return {};
}

// A preference is used if all its answers can be.
void Loader::TakePreference(Sample sample, std::vector<Piece>& pieces, uint64_t& positions) {
    Piece piece{{}, pieces.size(), 0};
    piece.sample.roles = std::move(sample.roles);
    piece.sample.label = sample.label;
    const uint64_t truncated = counts_.truncated;
    for (Sample& each : SplitPacked(std::move(sample))) {
        const bool used = Shorten(each);
        counts_.truncated = std::min(counts_.truncated, truncated + 1);  // one sample
        if (!used) return;
        Sample& whole = piece.sample;
        whole.starts.resize(whole.tokens.size() + each.tokens.size(), 0);
        whole.starts[whole.tokens.size()] = 1;
        whole.tokens.insert(whole.tokens.end(), each.tokens.begin(), each.tokens.end());
        whole.loss.insert(whole.loss.end(), each.loss.begin(), each.loss.end());
        piece.positions += each.tokens.size() - 1;
    }
    ++counts_.samples;
    positions += piece.positions;
    pieces.push_back(std::move(piece));
}

void Loader::TakeSample(Sample sample, std::vector<Piece>& pieces, uint64_t& positions) {
    if (!Shorten(sample)) return;
    ++counts_.samples;
    AddPieces(std::move(sample), pieces, positions);
}

// Cuts a sample that is too long to its length, if it is to be cut. Returns whether it is used, and
// counts why not.
bool Loader::Shorten(Sample& sample) {
    const auto needs = [&](uint64_t positions_needed) {
        const bool first = counts_.needed == 0;
        counts_.needed = first ? positions_needed : std::min(counts_.needed, positions_needed);
    };
    bool learned = Learns(sample);
    if (sample.tokens.size() > static_cast<size_t>(options_.sequence) + 1) {
        if (options_.longs == LongSamples::kSkip) {
            ++counts_.too_long;
            if (learned) needs(sample.tokens.size() - 1);
            return false;
        }
        if (options_.longs == LongSamples::kTruncate) {
            const auto first = std::find(sample.loss.begin() + 1, sample.loss.end(), 1);
            const auto at = static_cast<uint64_t>(first - sample.loss.begin());
            ++counts_.truncated;
            sample.tokens.resize(static_cast<size_t>(options_.sequence) + 1);
            sample.loss.resize(sample.tokens.size());
            if (learned && !Learns(sample)) {
                ++counts_.cut_off;
                needs(at);
                learned = false;
            }
        }
    }
    if (!learned) ++counts_.no_loss;
    return learned;
}

// Cuts a sample into pieces of at most S positions. Adjacent pieces share the token at the border:
// the target of one and the input of the next.
void Loader::AddPieces(Sample sample, std::vector<Piece>& pieces, uint64_t& positions) {
    const auto most = static_cast<size_t>(options_.sequence);
    const size_t all = sample.tokens.size() - 1;
    positions += all;
    if (all <= most) {
        pieces.push_back({std::move(sample), pieces.size(), all});
        return;
    }
    for (size_t at = 0; at < all; at += most) {
        const auto begin = static_cast<ptrdiff_t>(at);
        const auto end = static_cast<ptrdiff_t>(std::min(at + most, all) + 1);
        Sample part;
        part.tokens.assign(sample.tokens.begin() + begin, sample.tokens.begin() + end);
        part.loss.assign(sample.loss.begin() + begin, sample.loss.begin() + end);
        const size_t size = part.tokens.size() - 1;
        if (Learns(part)) pieces.push_back({std::move(part), pieces.size(), size});
    }
}

std::vector<std::vector<Loader::Piece>> Loader::PackPieces(std::vector<Piece> pieces) const {
    std::vector<std::vector<Piece>> sequences;
    if (!options_.pack) {
        for (Piece& piece : pieces) sequences.emplace_back().push_back(std::move(piece));
        return sequences;
    }
    std::ranges::stable_sort(pieces, std::ranges::greater(), &Piece::positions);
    std::multimap<size_t, size_t> open;  // remaining positions -> sequence
    for (Piece& piece : pieces) {
        const size_t needed = piece.positions;
        auto tightest = open.lower_bound(needed);
        size_t at = sequences.size(), left = static_cast<size_t>(options_.sequence);
        if (tightest == open.end()) {
            sequences.emplace_back();
        } else {
            left = tightest->first;
            at = tightest->second;
            open.erase(tightest);
        }
        if (left > needed) open.emplace(left - needed, at);
        sequences[at].push_back(std::move(piece));
    }
    for (auto& sequence : sequences) std::ranges::sort(sequence, {}, &Piece::order);
    std::ranges::sort(sequences, {}, [](const auto& each) { return each.front().order; });
    return sequences;
}

Sequence Loader::Build(const std::vector<Piece>& pieces) const {
    if (counts_only_) return {};
    Sequence made;
    const auto size = static_cast<size_t>(options_.sequence);
    made.tokens.reserve(size);
    made.targets.reserve(size);
    const auto add = [&](const Sample& sample) {
        made.begins.push_back(static_cast<int32_t>(made.tokens.size()));
        made.tokens.insert(made.tokens.end(), sample.tokens.begin(), sample.tokens.end() - 1);
        for (size_t i = 1; i < sample.tokens.size(); ++i) {
            made.targets.push_back(sample.loss[i] != 0 ? sample.tokens[i] : -1);
        }
    };
    for (const Piece& piece : pieces) {
        if (piece.sample.roles.empty()) {
            add(piece.sample);
            continue;
        }
        for (const Sample& each : SplitPacked(piece.sample)) {
            add(each);
            for (size_t i = 1; i < each.loss.size(); ++i) {
                made.answers.push_back(each.loss[i] == 1 ? 1 : 0);
            }
        }
        AddRoles(piece, made);
    }
    made.used = static_cast<int32_t>(made.tokens.size());
    made.tokens.resize(std::max(size, made.tokens.size()), options_.pad_id);
    made.targets.resize(made.tokens.size(), -1);
    return made;
}

void Loader::AddRoles(const Piece& piece, Sequence& made) const {
    made.roles = piece.sample.roles;
    made.record = piece.record;
    made.label = piece.sample.label;
    made.reference.assign(made.roles.size(), 0);
    const std::span<const double> all = options_.reference[static_cast<size_t>(options_.part)];
    if (all.empty()) return;
    const auto own = all.subspan(piece.record * kMostAnswers, made.roles.size());
    std::ranges::copy(own, made.reference.begin());
}

}  // namespace weft::train
