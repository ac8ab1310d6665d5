// How ranks wait for each other's part of a checkpoint.
#include "train/saver.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/fake_cluster.h"
#include "support/temp_dir.h"
#include "support/train_golden.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

// With --zero 0 one rank writes all of it: 84 GB of a model of 7B, over a network of 1 Gbit/s, are
// 12 minutes that the others have nothing to do in.
TEST(Saver, OneRankMayWriteLongerThanTheOthers) {
    const test::TempDir folder;
    support::TrainGolden::WriteFolder(folder.path());
    TrainerOptions options;
    options.model = folder.path();
    options.sequence = 16;
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 1);
    auto trainer = Trainer::Make(options, cluster);
    ASSERT_TRUE(trainer.ok()) << trainer.error().message;
    SaveOptions words;
    words.folder = folder / "out";
    std::filesystem::create_directories(words.folder);
    Saver saver(words, cluster, (*trainer)->state(), (*trainer)->rule(), (*trainer)->source(),
                "a model");
    RoomPlan room;
    room.folder = words.folder;
    saver.SetRoom({}, room);
    ASSERT_TRUE(saver.Begin(1, {{"updates", 1}}, SaveRoom::kBesideResult).ok());
    ASSERT_TRUE(saver.Finish().ok());
    EXPECT_EQ(saver.counts().saved, 1) << saver.fault();
    EXPECT_EQ(cluster.waits_ms.at("checkpoint"), 3'600'000);
}

}  // namespace
}  // namespace weft::train
