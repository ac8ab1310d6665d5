// Packed records of token ids: each of their samples is trained as in a record of its own.
#include "train/data/packed_ids.h"

#include <gtest/gtest.h>

#include <vector>

#include "train/data/inspect.h"
#include "train/data_case.h"

namespace weft::train {
namespace {

std::unique_ptr<DataSet> DataOf(const test::TempDir& folder, std::string_view text) {
    return Must(
        DataSet::Open({.specs = {WriteText(folder, "d.jsonl", text)}}, Encoder::OfIds(1000)));
}

std::vector<Sequence> SequencesOf(const DataSet& data, LoaderOptions options) {
    options.epochs = 1;
    Loader loader = Must(Loader::Make(data, options));
    std::vector<Sequence> all;
    while (auto batch = Must(loader.Next())) all.push_back(batch->sequences.at(0));
    return all;
}

void ExpectSame(std::string_view packed, std::string_view single, const LoaderOptions& options) {
    const test::TempDir folder, other;
    const auto data = DataOf(folder, packed);
    const auto got = SequencesOf(*data, options);
    const auto wanted = SequencesOf(*DataOf(other, single), options);
    ASSERT_EQ(got.size(), wanted.size()) << packed;
    for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].tokens, wanted[i].tokens) << packed;
        EXPECT_EQ(got[i].targets, wanted[i].targets) << packed;
        EXPECT_EQ(got[i].begins, wanted[i].begins) << packed;
    }
}

TEST(PackedIds, SamplesAreThoseOfSingleRecords) {
    constexpr std::string_view kSingle =
        "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5], \"loss_mask\": [1, 1]}\n"
        "{\"input_ids\": [6, 7, 8, 9], \"labels\": [-100, -100, 8, 9]}\n";
    constexpr std::string_view kIds = R"({"input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9],
        "labels": [1, 2, 3, 4, 5, -100, -100, 8, 9], )";
    for (const bool pack : {false, true}) {
        const LoaderOptions options{.sequence = 16, .pack = pack, .shuffle = false};
        for (const std::string_view form :
             {R"("seq_lengths": [3, 2, 4]})", R"("position_ids": [0, 1, 2, 0, 1, 0, 1, 2, 3]})",
              R"("seq_lens": [3, 2, 4], "input_pos": [0, 1, 2, 0, 1, 0, 1, 2, 3]})",
              R"("seq_lengths": [3, 6], "position_ids": [0, 1, 2, 0, 1, 0, 1, 2, 3]})",
              R"("seq_lengths": [3, 2, 0, 4], "position_ids": [0, 1, 2, 3, 4, 5, 6, 7, 8]})"}) {
            std::string record(kIds);
            record += form;
            std::erase(record, '\n');
            ExpectSame(record + "\n", kSingle, options);
        }
    }
}

TEST(PackedIds, PaddingHasNoPosition) {
    constexpr std::string_view kSingle = "{\"tokens\": [1, 2, 3]}\n{\"tokens\": [4, 5]}\n";
    const LoaderOptions options{.sequence = 8, .shuffle = false};
    ExpectSame(
        R"({"input_ids": [0, 1, 2, 3, 4, 5, 0, 0], "attention_mask": [0, 1, 1, 1, 1, 1, 0, 0],
                   "position_ids": [1, 0, 1, 2, 0, 1, 1, 1]})",
        kSingle, options);
    // torchtune: padding is a sample of its own, without labels.
    ExpectSame(R"({"tokens": [1, 2, 3, 4, 5, 0, 0], "labels": [1, 2, 3, 4, 5, -100, -100],
                   "seq_lens": [3, 2, 2], "input_pos": [0, 1, 2, 0, 1, 2, 3]})",
               kSingle, options);
}

TEST(PackedIds, OtherMembersAreRefused) {
    const auto refused = [](const std::string& member, const char* words) {
        const auto record = ParseRecord(R"({"input_ids": [1, 2, 3, 4], )" + member + "}");
        ASSERT_FALSE(record.ok()) << member;
        EXPECT_NE(record.error().message.find(words), std::string::npos) << record.error().message;
    };
    refused(R"("seq_lengths": [3, 2])", "'seq_lengths' is [3,2]; expected the lengths of the rec");
    refused(R"("seq_lengths": [3])", "4 in all");
    refused(R"("seq_lengths": [-1, 5])", "'seq_lengths' is [-1,5]");
    refused(R"("seq_lengths": [18446744073709551615, 5])", "4 in all");
    refused(R"("seq_lens": 4)", "'seq_lens' is 4");
    refused(R"("position_ids": [0, 1, 2])", "'position_ids' is not a list of 4 numbers");
    refused(R"("position_ids": [0, 1, 3, 4])", "'position_ids'[2] is 3; expected 2 or 0");
    refused(R"("position_ids": [5, 6, 7, 8])", "'position_ids'[0] is 5; expected 0");
    refused(R"("position_ids": [0, 1, 0.5, 1])", "give one record per sample");
    refused(R"("cu_seqlens": [0, 2, 4])", "'cu_seqlens' packs several samples");
    refused(R"("segment_ids": [1, 1, 2, 2])", "Write one of these instead, or give one record");
}

TEST(PackedIds, AreCountedAsSamples) {
    const test::TempDir folder;
    // 5 positions and 8 are not the pieces of one sample of 13.
    std::string text;
    for (int i = 0; i < 9; ++i) {
        text += R"({"input_ids": [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            "seq_lengths": [6, 9, 1]})";
        std::erase(text, '\n');
        text += "\n{\"input_ids\": [1, 2, 3]}\n";
    }
    const auto data = DataOf(folder, text);
    for (const bool pack : {false, true}) {
        const LoaderOptions options{.sequence = 8, .pack = pack, .epochs = 3};
        Loader loader = Must(Loader::Make(*data, options));
        Loader counting = Must(Loader::Make(*data, options));
        counting.CountOnly();
        while (Must(loader.Next()).has_value()) EXPECT_TRUE(Must(counting.Next()).has_value());
        EXPECT_FALSE(Must(counting.Next()).has_value());
        const LoaderCounts counts = *loader.first_epoch();
        EXPECT_EQ(counts.samples, 27u);
        EXPECT_EQ(counts.no_loss, 9u);
        EXPECT_EQ(counts.all(), 36u);
        EXPECT_EQ(counts.records(), 18u);
    }
    const DataReport report = Must(InspectData(
        *data, nullptr, {.loader = {.sequence = 8, .longs = LongSamples::kSplit}, .show = 3}));
    EXPECT_EQ(report.train.samples, 36u);
    EXPECT_EQ(report.train.read, 36u);
    EXPECT_EQ(report.train.usable, 36u);
    EXPECT_EQ(report.train.longest, 9u);
    EXPECT_EQ(report.train.loss_tokens, 9u * (5 + 8 + 2));
    EXPECT_EQ(report.shown.at(2).index, 2u);
    EXPECT_EQ(report.shown.at(1).tokens, 9u);
}

}  // namespace
}  // namespace weft::train
