// Comparison of training data between ranks and with checkpoints.
#include "train/dataset_agreement.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "support/fake_cluster.h"
#include "support/temp_dir.h"

namespace weft::train {
namespace {

DataIdentity Some() {
    DataIdentity identity;
    identity.name = "data.jsonl (JSON lines)";
    identity.content = {20, 1280, 0xfeedfeedfeedfeed};
    identity.tokenizer = 7;
    identity.chat = 9;
    identity.prompt_type = 1;
    return identity;
}

// The status on each rank. adapters: each rank's folder; empty: none.
std::vector<Status> Agree(const std::vector<DataIdentity>& identities,
                          const std::vector<std::string>& adapters = {}) {
    const int size = static_cast<int>(identities.size());
    test::FakeHub hub(size);
    std::vector<Status> told(identities.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            test::FakeCluster cluster(hub, rank, size);
            const auto index = static_cast<size_t>(rank);
            told[index] =
                AgreeOnData(cluster, identities[index], adapters.empty() ? "" : adapters[index]);
        });
    }
    for (std::thread& thread : threads) thread.join();
    return told;
}

TEST(SameData, EqualOnesAgree) {
    std::vector<DataIdentity> identities(3, Some());
    identities[1].name = "/elsewhere/copy.jsonl (JSON lines)";
    for (const Status& status : Agree(identities))
        EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST(SameData, EachDifferenceIsNamedOnEveryRank) {
    const struct {
        void (*change)(DataIdentity&);
        const char* said;
    } cases[] = {{[](DataIdentity& i) { i.content.records = 8; }, "8 records"},
                 {[](DataIdentity& i) { i.content.checksum ^= 1; }, "feedfeedfeedfeec"},
                 {[](DataIdentity& i) { i.tokenizer = 8; }, "tokenizer"},
                 {[](DataIdentity& i) { i.chat = 0; }, "chat template"},
                 {[](DataIdentity& i) { i.prompt_type = 5; }, "--prompt-type 5"},
                 {[](DataIdentity& i) { i.test_split = 0.5; }, "--test-split 0.5"}};
    for (const auto& [change, said] : cases) {
        std::vector<DataIdentity> identities(3, Some());
        change(identities[2]);
        const std::vector<Status> told = Agree(identities);
        for (const Status& status : told) {
            ASSERT_FALSE(status.ok()) << said;
            EXPECT_EQ(status.error().code, ErrorCode::kUsage);
            EXPECT_EQ(status.error().message, told[0].error().message);
            EXPECT_NE(status.error().message.find("rank 2 (host c)"), std::string::npos);
            EXPECT_EQ(status.error().message.find("rank 1"), std::string::npos);
            EXPECT_NE(status.error().message.find(said), std::string::npos)
                << status.error().message;
        }
    }
}

// The tensors of an adapter are in a file of either name.
TEST(SameData, AdaptersOfEitherFormAreCompared) {
    for (const char* name : {"adapter_model.safetensors", "adapter_model.bin"}) {
        const test::TempDir folders[3];
        std::vector<std::string> paths;
        for (const test::TempDir& folder : folders) {
            std::ofstream(folder / "adapter_config.json") << "{}";
            std::ofstream(folder / name) << (paths.size() < 2 ? "one" : "other");
            paths.push_back(folder.path());
        }
        const std::vector<DataIdentity> two(2, Some()), three(3, Some());
        for (const Status& status : Agree(two, {paths[0], paths[1]})) {
            EXPECT_TRUE(status.ok()) << status.error().message;
        }
        for (const Status& status : Agree(three, paths)) {
            ASSERT_FALSE(status.ok()) << name;
            EXPECT_NE(status.error().message.find("rank 2 (host c): the adapter of --lora-from"),
                      std::string::npos)
                << status.error().message;
        }
    }
}

TEST(SameData, ManyRanksThatDifferAreCounted) {
    std::vector<DataIdentity> identities(13, Some());
    for (size_t rank = 1; rank < identities.size(); ++rank) identities[rank].content.records = 8;
    const std::vector<Status> told = Agree(identities);
    EXPECT_NE(told[0].error().message.find("4 more ranks"), std::string::npos)
        << told[0].error().message;
}

TEST(SameData, ACheckpointKnowsItsDataAgain) {
    const nlohmann::json state = {{"content", JsonOf(Some())}};
    DataIdentity moved = Some();
    moved.name = "moved.jsonl";
    EXPECT_EQ(*OtherData(state, moved, "step-1", false), "");
    DataIdentity other = Some();
    other.content.checksum = 1;
    EXPECT_NE(OtherData(state, other, "step-1", false)->find("here"), std::string::npos);
    // Checkpoint of a version that recorded no data identity.
    EXPECT_EQ(*OtherData(nlohmann::json::object(), other, "step-1", false), "");
    for (const char* broken :
         {R"({"content": 3})", R"({"content": {}})", R"({"content": {"records": "many"}})"}) {
        const auto got = OtherData(nlohmann::json::parse(broken), other, "step-1", false);
        ASSERT_FALSE(got.ok()) << broken;
        EXPECT_EQ(got.error().code, ErrorCode::kCorrupt);
    }
}

}  // namespace
}  // namespace weft::train
