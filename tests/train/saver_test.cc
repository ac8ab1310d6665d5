// Ranks' waits for each other's parts of a checkpoint.
#include "train/saver.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "support/fake_cluster.h"
#include "support/temp_dir.h"
#include "support/train_golden.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

// By how much `progress` grows while another thread reads a MiB.
int64_t ProgressOfReading(const std::string& folder, const std::function<int64_t()>& progress) {
    const std::string path = folder + "/data";
    std::ofstream(path) << std::string(1 << 20, 'x');
    const int64_t before = progress();
    std::jthread([&] {
        std::string text(1 << 20, '\0');
        std::ifstream(path).read(text.data(), static_cast<std::streamsize>(text.size()));
    }).join();
    return progress() - before;
}

// A job of one rank with the golden model, and the folder of its checkpoints.
class SaverTest : public testing::Test {
  protected:
    SaverTest() {
        support::TrainGolden::WriteFolder(folder.path());
        options.model = folder.path();
        options.sequence = 16;
        words.folder = room.folder = folder / "out";
        std::filesystem::create_directories(words.folder);
    }
    const test::TempDir folder;
    TrainerOptions options;
    SaveOptions words;
    SpacePlan room;
    test::FakeHub hub{1};
    test::FakeCluster cluster{hub, 0, 1};
};

// With --zero 0 one rank writes everything: 84 GB for a 7B model take 12 minutes over 1 Gbit/s, in
// which the others are idle.
TEST_F(SaverTest, OneRankMayWriteLongerThanTheOthers) {
    auto trainer = Trainer::Make(options, cluster);
    ASSERT_TRUE(trainer.ok()) << trainer.error().message;
    Saver saver(words, cluster, (*trainer)->state(), (*trainer)->rule(), (*trainer)->source(),
                "a model");
    saver.SetSpace({}, room);
    cluster.SetProgress(nullptr);
    cluster.SetProgress(nullptr);  // clears both that the cluster has
    ASSERT_TRUE(saver.Begin(1, {{"updates", 1}}, SaveSpace::kBesideResult).ok());
    ASSERT_TRUE(saver.Finish().ok());
    EXPECT_EQ(saver.counts().saved, 1) << saver.fault();
    EXPECT_EQ(cluster.waits_ms.at("checkpoint"), 3'600'000);
    // The wait of the others begins again while this rank writes, and not while ops wait.
    ASSERT_TRUE(cluster.former_progress && cluster.progress);
    EXPECT_GE(ProgressOfReading(folder.path(), cluster.former_progress), 15);
    EXPECT_EQ(ProgressOfReading(folder.path(), cluster.progress), 0);
}

// Ranks 1 and 2 do not see rank 0's folder, and have one disk if they have one host.
TEST_F(SaverTest, ADiskHasTheFilesOfAllRanksOfItsHost) {
    const auto trainer = Trainer::Make(options, cluster);
    ASSERT_TRUE(trainer.ok()) << trainer.error().message;
    for (const bool apart : {false, true}) {
        test::FakeHub three(3);
        std::vector<uint64_t> bytes(3);
        const auto agree = [&](int rank) {
            test::FakeCluster member(three, rank, 3);
            if (apart) member.SetBoot(2, "another");
            const auto place = AgreeOnPlace(words, member, (*trainer)->state(), (*trainer)->rule(),
                                            (*trainer)->source());
            ASSERT_TRUE(place.ok()) << place.error().message;
            bytes[static_cast<size_t>(rank)] = place->own_bytes;
        };
        {
            const std::jthread second(agree, 1), third(agree, 2);
            agree(0);
        }
        EXPECT_GT(bytes[0], 0u);
        const uint64_t others = apart ? bytes[0] : 2 * bytes[0];
        EXPECT_EQ(bytes, (std::vector<uint64_t>{bytes[0], others, others}));
    }
}

// Muon's arrays differ from Adam's; an older version's may, too.
TEST_F(SaverTest, AnErrorNamesWhatWroteOtherArrays) {
    const auto adam = Trainer::Make(options, cluster);
    ASSERT_TRUE(adam.ok()) << adam.error().message;
    Saver saver(words, cluster, (*adam)->state(), (*adam)->rule(), (*adam)->source(), "a model");
    saver.SetSpace({}, room);
    options.update.kind = UpdateKind::kMuon;
    options.update.momentum = 0.95;
    const auto muon = Trainer::Make(options, cluster);
    ASSERT_TRUE(muon.ok()) << muon.error().message;
    const auto fault_of = [&](int64_t step, const char* optimizer) {
        EXPECT_TRUE(saver.Begin(step, {{"optimizer", optimizer}}, SaveSpace::kBesideResult).ok());
        EXPECT_TRUE(saver.Finish().ok());
        const auto checkpoint = Checkpoint::Open(StepFolder(words.folder, step));
        EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
        return ReadKept(*checkpoint, (*muon)->state(), (*muon)->rule(), options.update, false)
            .error()
            .message;
    };
    const std::string other = fault_of(1, "adamw"), same = fault_of(2, "muon");
    EXPECT_NE(other.find("with the optimizer of the checkpoint"), std::string::npos) << other;
    EXPECT_NE(same.find("--optimizer muon of another weft and has no"), std::string::npos) << same;
    EXPECT_NE(same.find("with the weft of the checkpoint"), std::string::npos) << same;
}

}  // namespace
}  // namespace weft::train
