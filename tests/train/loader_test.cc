// Batches: every sample once per epoch, for any ranks and packing; the same order for the same
// seed; resumable at any batch.
#include "train/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "support/wait.h"
#include "train/batch_ahead.h"
#include "train/data/inspect.h"
#include "train/data/random.h"
#include "train/data_case.h"

namespace weft::train {
namespace {

using test::TempDir;

// Samples whose tokens identify them: sample i is [i, 1, 2, ..., n], with lengths by a formula.
class Numbered final : public DataSet {
  public:
    Numbered(uint64_t count, uint64_t longest) : count_(count), longest_(longest) {}
    uint64_t size(Part part) const override { return part == Part::kTrain ? count_ : 0; }
    std::string Name() const override { return "numbered"; }
    DataContent content() const override { return {.records = count_}; }
    uint64_t Positions(uint64_t index) const { return 1 + Mix(index) % longest_; }
    Result<Sample> Read(Part, uint64_t index) const override {
        ++reads;
        if (bad.contains(index)) {
            return MakeError(ErrorCode::kCorrupt, "numbered: line {}: bad", index + 1);
        }
        Sample sample;
        sample.tokens.push_back(static_cast<int32_t>(1000 + index));
        for (uint64_t i = 1; i <= Positions(index); ++i) {
            sample.tokens.push_back(static_cast<int32_t>(i));
        }
        sample.loss.assign(sample.tokens.size(), 1);
        if (without_loss.contains(index)) std::ranges::fill(sample.loss, uint8_t{0});
        if (at_the_end.contains(index)) {
            std::ranges::fill(sample.loss, uint8_t{0});
            sample.loss.back() = 1;
        }
        return sample;
    }
    std::set<uint64_t> bad, without_loss, at_the_end;
    mutable std::atomic<uint64_t> reads = 0;

  private:
    uint64_t count_, longest_;
};

std::vector<Sequence> Epoch(const DataSet& data, LoaderOptions options) {
    options.epochs = options.epochs == 0 ? 1 : options.epochs;
    Loader loader = Must(Loader::Make(data, options));
    std::vector<Sequence> all;
    while (auto batch = Must(loader.Next())) {
        for (Sequence& sequence : batch->sequences) all.push_back(std::move(sequence));
    }
    return all;
}

// Samples in a sequence, each checked to be complete and separate.
std::vector<uint64_t> SamplesOf(const Sequence& sequence, const Numbered& data, int64_t size) {
    std::vector<uint64_t> found;
    EXPECT_EQ(sequence.tokens.size(), static_cast<size_t>(size));
    EXPECT_EQ(sequence.targets.size(), static_cast<size_t>(size));
    for (size_t b = 0; b < sequence.begins.size(); ++b) {
        const auto begin = static_cast<size_t>(sequence.begins[b]);
        const auto end = static_cast<size_t>(b + 1 < sequence.begins.size() ? sequence.begins[b + 1]
                                                                            : sequence.used);
        const auto index = static_cast<uint64_t>(sequence.tokens[begin] - 1000);
        EXPECT_EQ(end - begin,
                  std::min<uint64_t>(data.Positions(index), static_cast<uint64_t>(size)));
        for (size_t i = begin; i < end; ++i) {
            EXPECT_EQ(sequence.targets[i], static_cast<int32_t>(i - begin + 1));
            if (i > begin) {
                EXPECT_EQ(sequence.tokens[i], static_cast<int32_t>(i - begin));
            }
        }
        found.push_back(index);
    }
    for (auto i = static_cast<size_t>(sequence.used); i < sequence.tokens.size(); ++i) {
        EXPECT_EQ(sequence.targets[i], -1);
        EXPECT_EQ(sequence.tokens[i], 0);
    }
    return found;
}

TEST(Permutation, IsOneOfAllNumbers) {
    for (const uint64_t n : {1u, 2u, 3u, 4u, 5u, 63u, 64u, 65u, 1000u, 4097u}) {
        std::set<uint64_t> seen;
        uint64_t fixed = 0;
        const Permutation order(n, 42);
        for (uint64_t i = 0; i < n; ++i) {
            EXPECT_LT(order(i), n);
            seen.insert(order(i));
            fixed += order(i) == i ? 1 : 0;
        }
        EXPECT_EQ(seen.size(), n);
        if (n >= 63) {
            EXPECT_LE(fixed, 8u) << n;
        }
    }
    EXPECT_NE(Permutation(1000, 1)(0), Permutation(1000, 2)(0));
}

TEST(Loader, GivesEverySampleOnceAnEpochInAnyForm) {
    const Numbered data(1000, 100);
    for (const bool pack : {false, true}) {
        for (const bool shuffle : {false, true}) {
            const LoaderOptions options{
                .sequence = 128, .global_batch = 7, .pack = pack, .shuffle = shuffle, .seed = 5};
            std::vector<uint64_t> found;
            for (const Sequence& sequence : Epoch(data, options)) {
                for (const uint64_t index : SamplesOf(sequence, data, 128)) found.push_back(index);
            }
            EXPECT_EQ(std::ranges::is_sorted(found), !shuffle && !pack);
            EXPECT_EQ(found.size(), 1000u);
            EXPECT_EQ(std::set<uint64_t>(found.begin(), found.end()).size(), 1000u);
        }
    }
}

TEST(Loader, TargetsFollowTheMask) {
    const TempDir folder;
    const std::string path =
        WriteText(folder, "d.jsonl", "{\"tokens\": [5, 6, 7, 8], \"loss\": [1, 0, 1, 0]}\n");
    const auto data = Must(DataSet::Open({.specs = {path}}, ByteEncoder()));
    Loader loader = Must(Loader::Make(*data, {.sequence = 5, .pad_id = 9}));
    const auto batch = Must(loader.Next());
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->sequences[0].tokens, (std::vector<int32_t>{5, 6, 7, 9, 9}));
    EXPECT_EQ(batch->sequences[0].targets, (std::vector<int32_t>{-1, 7, -1, -1, -1}));
    EXPECT_EQ(batch->global_targets, 1u);
}

TEST(Loader, PacksTightly) {
    const Numbered data(5000, 100);
    uint64_t used = 0, positions = 0;
    for (const Sequence& sequence : Epoch(data, {.sequence = 256, .pack = true})) {
        used += static_cast<uint64_t>(sequence.used);
        positions += 256;
    }
    // Only the last sequence of each window of 64 may have much free space.
    EXPECT_GT(static_cast<double>(used) / static_cast<double>(positions), 0.97);
}

TEST(Loader, AnyNumberOfRanksSeesOneList) {
    const Numbered data(333, 60);
    for (const bool pack : {false, true}) {
        LoaderOptions options{
            .sequence = 64, .global_batch = 12, .pack = pack, .seed = 9, .epochs = 2};
        Loader alone = Must(Loader::Make(data, options));
        for (const int ranks : {2, 3, 5, 12}) {
            alone = Must(Loader::Make(data, options));
            std::vector<Loader> several;
            for (int rank = 0; rank < ranks; ++rank) {
                LoaderOptions own = options;
                own.rank = rank;
                own.ranks = ranks;
                several.push_back(Must(Loader::Make(data, own)));
            }
            while (const auto whole = Must(alone.Next())) {
                size_t at = 0;
                for (Loader& loader : several) {
                    const auto part = Must(loader.Next());
                    ASSERT_TRUE(part);
                    EXPECT_EQ(part->global_targets, whole->global_targets);
                    EXPECT_EQ(part->global_sequences, whole->global_sequences);
                    for (const Sequence& sequence : part->sequences) {
                        ASSERT_LT(at, whole->sequences.size());
                        EXPECT_EQ(sequence.tokens, whole->sequences[at].tokens);
                        EXPECT_EQ(sequence.targets, whole->sequences[at].targets);
                        EXPECT_EQ(sequence.begins, whole->sequences[at].begins);
                        ++at;
                    }
                    EXPECT_EQ(loader.cursor(), alone.cursor());
                }
                EXPECT_EQ(at, 12u);
            }
            for (Loader& loader : several) EXPECT_FALSE(Must(loader.Next()));
        }
    }
}

TEST(Loader, GoesOnFromAnyBatch) {
    Numbered data(200, 90);
    data.bad = {3, 77};
    for (const bool pack : {false, true}) {
        const LoaderOptions options{.sequence = 48,
                                    .global_batch = 5,
                                    .pack = pack,
                                    .longs = LongSamples::kSplit,
                                    .skip_bad = true,
                                    .seed = 4,
                                    .epochs = 3};
        Loader whole = Must(Loader::Make(data, options));
        for (;;) {
            const Cursor cursor = whole.cursor();
            Loader resumed = Must(Loader::Make(data, options));
            const Status sought = resumed.Seek(cursor);
            ASSERT_TRUE(sought.ok()) << sought.error().message;
            const auto a = Must(whole.Next());
            const auto b = Must(resumed.Next());
            ASSERT_EQ(a.has_value(), b.has_value());
            if (!a) break;
            for (size_t i = 0; i < a->sequences.size(); ++i) {
                ASSERT_EQ(a->sequences[i].tokens, b->sequences[i].tokens);
                ASSERT_EQ(a->sequences[i].begins, b->sequences[i].begins);
            }
            ASSERT_EQ(whole.cursor(), resumed.cursor());
        }
        EXPECT_EQ(whole.cursor().epoch, 3u);
        Loader resumed = Must(Loader::Make(data, options));
        EXPECT_FALSE(resumed.Seek({0, 200, 0}).ok());
        EXPECT_FALSE(resumed.Seek({0, 0, 100'000}).ok());
    }
}

// The same sequences and counts, and the same error.
TEST(Loader, SeveralThreadsReadTheSameBatches) {
    Numbered data(3000, 90);
    data.bad = {3, 77, 2999};
    data.without_loss = {5};
    for (const bool skip_bad : {true, false}) {
        for (const bool counts : {false, true}) {
            const LoaderOptions options{.sequence = 48,
                                        .global_batch = 5,
                                        .longs = LongSamples::kSplit,
                                        .skip_bad = skip_bad,
                                        .seed = 4,
                                        .epochs = 2};
            Loader alone = Must(Loader::Make(data, options));
            Loader several = Must(Loader::Make(data, options));
            several.ReadOn({0, 0, 0});
            for (Loader* loader : {&alone, &several}) {
                ASSERT_TRUE(loader->Seek({0, 20, 0}).ok());
                if (counts) loader->CountOnly();
            }
            data.reads = 0;
            for (bool more = true; more;) {
                const auto a = alone.Next(), b = several.Next();
                ASSERT_EQ(a.ok(), b.ok());
                if (!a.ok()) {
                    EXPECT_EQ(a.error().message, b.error().message);
                    break;
                }
                more = a->has_value();
                ASSERT_EQ(more, b->has_value());
                ASSERT_EQ(alone.cursor(), several.cursor());
                if (!more) break;
                ASSERT_EQ((*a)->global_targets, (*b)->global_targets);
                for (size_t i = 0; i < (*a)->sequences.size(); ++i) {
                    ASSERT_EQ((*a)->sequences[i].tokens, (*b)->sequences[i].tokens);
                    ASSERT_EQ((*a)->sequences[i].targets, (*b)->sequences[i].targets);
                }
            }
            EXPECT_EQ(alone.counts().samples, several.counts().samples);
            EXPECT_EQ(alone.counts().bad, several.counts().bad);
            EXPECT_EQ(alone.counts().first_bad, several.counts().first_bad);
            EXPECT_EQ(alone.counts().no_loss, several.counts().no_loss);
            if (counts && skip_bad) {
                EXPECT_EQ(data.reads, 2u * 3000);
            }
        }
    }
}

// The batches of a Loader, and its position and counts after each, while the next one is read.
TEST(BatchAhead, HasTheBatchesOfItsLoader) {
    Numbered data(700, 90);
    data.bad = {77, 650};
    for (const bool skip_bad : {true, false}) {
        const LoaderOptions options{
            .sequence = 48, .global_batch = 5, .skip_bad = skip_bad, .seed = 4, .epochs = 2};
        Loader plain = Must(Loader::Make(data, options)), read = Must(Loader::Make(data, options));
        for (Loader* loader : {&plain, &read}) ASSERT_TRUE(loader->Seek({0, 20, 0}).ok());
        BatchAhead ahead(read, {0, 0});
        EXPECT_EQ(ahead.cursor(), plain.cursor());
        for (int number = 0;; ++number) {
            const auto a = plain.Next(), b = ahead.Next(number % 7 != 3);
            ASSERT_EQ(a.ok(), b.ok());
            if (!a.ok()) {
                EXPECT_EQ(a.error().message, b.error().message);
                break;
            }
            ASSERT_EQ(a->has_value(), b->has_value());
            ASSERT_EQ(plain.cursor(), ahead.cursor());
            ASSERT_EQ(plain.counts().samples, ahead.counts().samples);
            ASSERT_EQ(plain.counts().first_bad, ahead.counts().first_bad);
            ASSERT_EQ(plain.first_epoch().has_value(), ahead.first_epoch().has_value());
            if (!a->has_value()) break;
            for (size_t i = 0; i < (*a)->sequences.size(); ++i) {
                ASSERT_EQ((*a)->sequences[i].tokens, (*b)->sequences[i].tokens);
            }
        }
    }
}

TEST(BatchAhead, ReadsWhileNobodyAsks) {
    // (Each window is one batch of samples that are as long as a sequence.)
    const Numbered data(4000, 1);
    const LoaderOptions options{.sequence = 1, .global_batch = 64, .pack = false, .seed = 4};
    Loader loader = Must(Loader::Make(data, options));
    BatchAhead ahead(loader, {0});
    ASSERT_TRUE(Must(ahead.Next(false)).has_value());
    const uint64_t before = data.reads;
    ASSERT_TRUE(Must(ahead.Next(true)).has_value());
    const uint64_t one = data.reads - before;
    EXPECT_GT(one, 0u);
    EXPECT_TRUE(test::Until([&] { return data.reads >= before + 2 * one; }));
}

TEST(Mixture, SourcesHaveTheirShares) {
    const std::vector<uint64_t> sizes = {10, 90, 7};
    const Mixture mixture = Must(Mixture::Make(sizes, std::vector<double>{3, 1, 0}, true, 8));
    std::map<uint64_t, int> seen;
    for (uint64_t epoch = 0; epoch < 9; ++epoch) {
        int first = 0;
        for (uint64_t draw = 0; draw < 107; ++draw) {
            const uint64_t record = mixture(epoch, draw);
            ASSERT_LT(record, 100u);
            first += record < 10 ? 1 : 0;
            ++seen[record];
        }
        EXPECT_EQ(first, 80);  // 3/4 of 107 is 80.25
    }
    // 720 draws of 10 records, 243 of 90.
    EXPECT_EQ(seen.size(), 100u);
    for (const auto& [record, count] : seen) {
        EXPECT_TRUE(record < 10 ? count == 72 : count == 2 || count == 3) << record;
    }
    const Mixture ordered = Must(Mixture::Make(sizes, std::vector<double>{1, 1, 2}, false, 8));
    EXPECT_EQ(ordered(0, 0), 0u);
    EXPECT_EQ(ordered(0, 12), 2u);
    EXPECT_EQ(ordered(1, 0), 7u);  // 27 draws an epoch
    EXPECT_NE(mixture.Fingerprint(), ordered.Fingerprint());
}

TEST(Mixture, RefusesWeightsWithoutAMeaning) {
    const std::vector<uint64_t> sizes = {10, 0};
    const auto message = [&](std::vector<double> weights) {
        const auto made = Mixture::Make(sizes, weights, true, 0);
        return made.ok() ? "" : made.error().message;
    };
    EXPECT_EQ(message({1, 0}), "");
    EXPECT_NE(message({1, 1}).find("source 2 has no record"), std::string::npos);
    for (const std::vector<double>& bad :
         {std::vector<double>{1}, {0, 0}, {1, -1}, {std::nan(""), 1}}) {
        EXPECT_NE(message(bad).find("--data-weights"), std::string::npos);
    }
}

TEST(Mixture, ALoaderGoesOnFromAnyBatch) {
    const TempDir folder;
    std::filesystem::create_directory(folder / "b");
    const auto write = [&](const char* name, int begin, int count) {
        std::string text;
        for (int i = begin; i < begin + count; ++i) {
            text += fmt::format("{{\"tokens\": [{}, 1, 2]}}\n", i);
        }
        return WriteText(folder, name, text);
    };
    const std::string a = write("a.jsonl", 10, 5);
    write("b/1.jsonl", 100, 20);
    write("b/2.jsonl", 120, 15);
    const auto data = Must(DataSet::Open({.specs = {a, folder / "b"}}, ByteEncoder()));
    EXPECT_EQ(data->SizesOf(Part::kTrain), (std::vector<uint64_t>{5, 35}));
    LoaderOptions options{.sequence = 8, .global_batch = 3, .pack = false, .epochs = 3};
    const Loader all = Must(Loader::Make(*data, options));
    options.mixture =
        Must(Mixture::Make(data->SizesOf(Part::kTrain), std::vector<double>{0.5, 0.5}, true, 1));
    Loader whole = Must(Loader::Make(*data, options));
    EXPECT_NE(whole.Fingerprint(), all.Fingerprint());
    int of_a = 0, of_b = 0;
    for (;;) {
        Loader resumed = Must(Loader::Make(*data, options));
        ASSERT_TRUE(resumed.Seek(whole.cursor()).ok());
        const auto batch = Must(whole.Next()), again = Must(resumed.Next());
        ASSERT_EQ(batch.has_value(), again.has_value());
        if (!batch) break;
        for (size_t i = 0; i < batch->sequences.size(); ++i) {
            ASSERT_EQ(batch->sequences[i].tokens, again->sequences[i].tokens);
            if (batch->sequences[i].begins.empty()) continue;
            ++(batch->sequences[i].tokens[0] < 100 ? of_a : of_b);
        }
    }
    EXPECT_EQ(of_a, 60);
    EXPECT_EQ(of_b, 60);
}

TEST(Loader, TheFingerprintIsOfWhatTheListDependsOn) {
    const Numbered data(100, 5), more(101, 5);
    const LoaderOptions options{.sequence = 8};
    const auto of = [](const DataSet& set, const LoaderOptions& o) {
        return Must(Loader::Make(set, o)).Fingerprint();
    };
    const uint64_t plain = of(data, options);
    std::set<uint64_t> others = {plain, of(more, options)};
    std::vector<LoaderOptions> changed(6, options);
    changed[0].sequence = 9;
    changed[1].pack = false;
    changed[2].shuffle = false;
    changed[3].longs = LongSamples::kSplit;
    changed[4].skip_bad = true;
    changed[5].seed = 1;
    for (const LoaderOptions& each : changed) others.insert(of(data, each));
    EXPECT_EQ(others.size(), 8u);
    LoaderOptions same = options;
    same.ranks = 4;
    same.rank = 2;
    same.global_batch = 16;
    same.epochs = 3;
    EXPECT_EQ(of(data, same), plain);
}

TEST(Loader, EpochsDifferAndSeedsDo) {
    const Numbered data(100, 5);
    const LoaderOptions options{.sequence = 8, .global_batch = 100, .pack = false, .epochs = 2};
    const auto all = Epoch(data, options);
    ASSERT_EQ(all.size(), 200u);
    const auto first_tokens = [&](size_t from) {
        std::vector<int32_t> tokens;
        for (size_t i = from; i < from + 100; ++i) tokens.push_back(all[i].tokens[0]);
        return tokens;
    };
    EXPECT_NE(first_tokens(0), first_tokens(100));
    LoaderOptions seeded = options;
    seeded.seed = 1;
    EXPECT_NE(Epoch(data, seeded)[0].tokens, all[0].tokens);
}

TEST(Loader, TheLastBatchIsFilledUpWithNothing) {
    const Numbered data(10, 5);
    Loader loader = Must(Loader::Make(
        data, {.sequence = 8, .global_batch = 4, .pack = false, .epochs = 1, .pad_id = 9}));
    uint64_t sequences = 0;
    std::vector<Batch> batches;
    while (auto batch = Must(loader.Next())) {
        sequences += batch->global_sequences;
        batches.push_back(*std::move(batch));
    }
    EXPECT_EQ(sequences, 10u);
    ASSERT_EQ(batches.size(), 3u);
    ASSERT_EQ(batches[2].sequences.size(), 4u);
    const Sequence& empty = batches[2].sequences[3];
    EXPECT_EQ(empty.used, 0);
    EXPECT_TRUE(empty.begins.empty());
    EXPECT_EQ(empty.tokens, std::vector<int32_t>(8, 9));
    EXPECT_EQ(empty.targets, std::vector<int32_t>(8, -1));
}

TEST(Loader, LongSamplesByChoice) {
    const Numbered data(300, 100);
    uint64_t over = 0, positions = 0;
    for (uint64_t i = 0; i < 300; ++i) {
        over += data.Positions(i) > 40 ? 1 : 0;
        positions += data.Positions(i);
    }
    ASSERT_GT(over, 50u);
    LoaderOptions options{.sequence = 40, .global_batch = 3, .epochs = 1};
    const auto run = [&](LongSamples longs) {
        options.longs = longs;
        Loader loader = Must(Loader::Make(data, options));
        uint64_t targets = 0;
        while (const auto batch = Must(loader.Next())) targets += batch->global_targets;
        return std::pair(loader.counts(), targets);
    };
    const auto [cut, cut_targets] = run(LongSamples::kTruncate);
    EXPECT_EQ(cut.truncated, over);
    EXPECT_EQ(cut.samples, 300u);
    EXPECT_LT(cut_targets, positions);
    const auto [skipped, skipped_targets] = run(LongSamples::kSkip);
    EXPECT_EQ(skipped.too_long, over);
    EXPECT_EQ(skipped.samples, 300 - over);
    const auto [split, split_targets] = run(LongSamples::kSplit);
    EXPECT_EQ(split.samples, 300u);
    EXPECT_EQ(split_targets, positions);  // no token is lost at a boundary
}

// Samples that are too long are not called samples without loss.
TEST(Loader, NamesWhyNoTokenIsLearned) {
    Numbered data(3, 1000);
    data.at_the_end = {0, 1, 2};
    const uint64_t shortest = std::min({data.Positions(0), data.Positions(1), data.Positions(2)});
    ASSERT_GT(shortest, 2u);
    const auto sequence = static_cast<int64_t>(shortest) - 1;
    const auto said = [&](LongSamples longs, bool may_split = true) {
        LoaderOptions options{.sequence = sequence, .global_batch = 1, .epochs = 1};
        options.longs = longs;
        options.may_split = may_split;
        Loader loader = Must(Loader::Make(data, options));
        const auto batch = loader.Next();
        return batch.ok() ? "" : batch.error().message;
    };
    const std::string next =
        fmt::format(". The shortest needs --seq-len {}; or use --long split", shortest);
    EXPECT_EQ(said(LongSamples::kTruncate),
              fmt::format("numbered: nothing to learn in 3 samples: 3 whose learned tokens all lie "
                          "beyond --seq-len {}{}",
                          sequence, next));
    EXPECT_EQ(said(LongSamples::kSkip),
              fmt::format("numbered: nothing to learn in 3 samples: 3 longer than --seq-len {}{}",
                          sequence, next));
    EXPECT_EQ(said(LongSamples::kSkip, false).find("--long split"), std::string::npos);
    EXPECT_EQ(said(LongSamples::kSplit), "");
}

TEST(Loader, BadRecordsEndOrAreCounted) {
    Numbered data(50, 5);
    data.bad = {7, 8, 30};
    data.without_loss = {1, 2};
    LoaderOptions options{.sequence = 16, .global_batch = 1, .shuffle = false, .epochs = 1};
    Loader strict = Must(Loader::Make(data, options));
    const auto failed = strict.Next();
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().message, "numbered: line 8: bad");
    options.skip_bad = true;
    Loader loader = Must(Loader::Make(data, options));
    while (Must(loader.Next())) {
    }
    EXPECT_EQ(loader.counts().bad, 3u);
    EXPECT_EQ(loader.counts().no_loss, 2u);
    EXPECT_EQ(loader.counts().samples, 45u);
    EXPECT_EQ(loader.counts().first_bad, "numbered: line 8: bad");
    // If every sample is bad, the result is an error, not an endless search.
    for (uint64_t i = 0; i < 50; ++i) data.bad.insert(i);
    options.epochs = 0;
    Loader empty = Must(Loader::Make(data, options));
    const auto none = empty.Next();
    ASSERT_FALSE(none.ok());
    EXPECT_NE(none.error().message.find("nothing to learn in 50 samples"), std::string::npos);
}

// Independent of how much of the next epoch was read for the batch in which the first one ends.
TEST(Loader, CountsOfTheFirstEpoch) {
    Numbered data(50, 5);
    data.without_loss = {1, 2};
    Loader loader = Must(Loader::Make(data, {.sequence = 16, .global_batch = 7, .epochs = 3}));
    EXPECT_FALSE(loader.first_epoch().has_value());
    while (Must(loader.Next())) {
    }
    EXPECT_EQ(loader.first_epoch().value().samples, 48u);
    EXPECT_EQ(loader.first_epoch().value().no_loss, 2u);
    EXPECT_EQ(loader.counts().records(), 150u);
}

// With any skipping, truncation and packing, and from any start.
TEST(Loader, BatchesAreCountedByReadingEachSampleOnce) {
    Numbered data(400, 100);
    data.bad = {7};
    data.without_loss = {1, 2, 300};
    for (uint64_t i = 0; i < 400; i += 3) data.at_the_end.insert(i);
    const auto sequences = [](Loader& loader) {
        std::vector<uint64_t> all;
        while (const auto batch = Must(loader.Next())) all.push_back(batch->global_sequences);
        return all;
    };
    for (const LongSamples longs :
         {LongSamples::kTruncate, LongSamples::kSkip, LongSamples::kSplit}) {
        for (const bool pack : {false, true}) {
            for (const int skipped : {0, 20, 100}) {
                const LoaderOptions options{.sequence = 40,
                                            .global_batch = 3,
                                            .pack = pack,
                                            .longs = longs,
                                            .skip_bad = true,
                                            .epochs = 5};
                Loader loader = Must(Loader::Make(data, options));
                for (int i = 0; i < skipped; ++i) EXPECT_TRUE(Must(loader.Next()).has_value());
                Loader counting = Must(Loader::Make(data, options));
                ASSERT_TRUE(counting.Seek(loader.cursor()).ok());
                counting.CountOnly();
                data.reads = 0;
                const std::vector<uint64_t> counted = sequences(counting);
                EXPECT_LE(data.reads, 400u);
                EXPECT_EQ(sequences(loader), counted)
                    << static_cast<int>(longs) << " " << pack << " " << skipped;
                if (skipped > 0) continue;
                EXPECT_EQ(counting.first_epoch()->truncated, loader.first_epoch()->truncated);
                EXPECT_EQ(counting.first_epoch()->no_loss, loader.first_epoch()->no_loss);
                EXPECT_EQ(counting.counts().records(), 400u);
            }
        }
    }
}

TEST(Loader, RefusesSizesThatMakeNoSense) {
    const Numbered data(3, 5);
    for (const LoaderOptions& options :
         {LoaderOptions{.sequence = 0}, LoaderOptions{.global_batch = 0},
          LoaderOptions{.rank = 2, .ranks = 2}, LoaderOptions{.part = Part::kTest}}) {
        const auto made = Loader::Make(data, options);
        ASSERT_FALSE(made.ok());
        EXPECT_EQ(made.error().code, ErrorCode::kUsage);
    }
}

TEST(DataSet, ReadsAFileAndNamesTheLineThatIsBad) {
    const TempDir folder;
    const std::string path =
        WriteText(folder, "d.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n\n{\"x\": 1}\n");
    const auto data = Must(DataSet::Open({.specs = {path}}, ByteEncoder()));
    ASSERT_EQ(data->size(Part::kTrain), 2u);
    EXPECT_EQ(Marked(Must(data->Read(Part::kTrain, 0))), "a[b<|endoftext|>]");
    const auto bad = data->Read(Part::kTrain, 1);
    ASSERT_FALSE(bad.ok());
    EXPECT_TRUE(bad.error().message.starts_with(path + ": line 3: a record with 'x'"))
        << bad.error().message;
}

TEST(DataSet, RandomTokensAreSeededAndInRange) {
    const auto data = Must(DataSet::RandomTokens(
        {.specs = {"synthetic:random-tokens:33:100"}, .split = {.test = 0.1, .seed = 1}}, 50));
    EXPECT_EQ(data->size(Part::kTrain), 90u);
    EXPECT_EQ(data->size(Part::kTest), 10u);
    std::set<int32_t> seen;
    std::set<std::vector<int32_t>> different;
    for (uint64_t i = 0; i < 90; ++i) {
        const Sample sample = Must(data->Read(Part::kTrain, i));
        EXPECT_EQ(sample.tokens.size(), 33u);
        seen.insert(sample.tokens.begin(), sample.tokens.end());
        different.insert(sample.tokens);
    }
    EXPECT_EQ(seen.size(), 50u);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), 49);
    EXPECT_EQ(different.size(), 90u);
    for (const char* spec : {"synthetic:random-tokens:x", "synthetic:random-tokens:9:9:9",
                             "synthetic:random-tokens:0", "synthetic:other"}) {
        EXPECT_FALSE(DataSet::RandomTokens({.specs = {spec}}, 50).ok()) << spec;
    }
}

TEST(Inspect, CountsAndShowsMasks) {
    const TempDir folder;
    std::string text;
    for (int i = 0; i < 20; ++i) {
        text += "{\"prompt\": \"" + std::string(static_cast<size_t>(i), 'p') +
                "\\n\", \"completion\": \"cc\"}\n";
    }
    const std::string path = WriteText(folder, "d.jsonl", text + "{]\n");
    const auto data = Must(DataSet::Open({.specs = {path}}, ByteEncoder()));
    InspectOptions options{.loader = {.sequence = 16}, .show = 1};
    EXPECT_FALSE(InspectData(*data, &Bytes(), options).ok());
    options.loader.skip_bad = true;
    const DataReport report = Must(InspectData(*data, &Bytes(), options));
    EXPECT_EQ(report.train.samples, 21u);
    EXPECT_EQ(report.train.usable, 20u);
    EXPECT_EQ(report.train.bad, 1u);
    EXPECT_EQ(report.train.shortest, 4u);
    EXPECT_EQ(report.train.longest, 23u);
    EXPECT_EQ(report.train.median, 14u);
    EXPECT_EQ(report.train.loss_tokens, 60u);
    EXPECT_EQ(report.train.over_long, 6u);
    EXPECT_EQ(report.train.no_loss, 4u);  // of 6 endings, two keep a character
    uint64_t binned = 0;
    for (const LengthBin& bin : report.train.bins) binned += bin.count;
    EXPECT_EQ(binned, 20u);
    EXPECT_GT(report.sequences, 10u);
    const std::string words = ReportText(report);
    EXPECT_NE(words.find("  -      1  \\n\n  +      3  cc\u27E6<|endoftext|>\u27E7\n"),
              std::string::npos)
        << words;
    EXPECT_NE(words.find("line 21: not valid JSON"), std::string::npos) << words;
    EXPECT_EQ(ReportJson(report).at("samples").at(0).at("runs").at(1).at("text"),
              "cc\u27E6<|endoftext|>\u27E7");
}

}  // namespace
}  // namespace weft::train
