// Weights are loaded on all cores of the rank, although its device pins the rank's thread to one.
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "engine/rank/rank.h"
#include "hw/cpu.h"
#include "model_files/source_over.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::engine {
namespace {

// Notes on which cores the threads that read its matrices may run.
class Watched final : public model_files::SourceOver {
  public:
    explicit Watched(std::unique_ptr<model_files::ModelSource> under)
        : SourceOver(std::move(under)) {
        for (size_t i = 0; i < tensors().size(); ++i) {
            if (tensors()[i].rows > 1) ChangeToF32(i);
        }
    }
    std::set<std::vector<int>> cores() const {
        const std::lock_guard lock(mutex_);
        return cores_;
    }

  protected:
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override {
        {
            const std::lock_guard lock(mutex_);
            cores_.insert(AllowedCores());
        }
        return under().ReadRows(under().tensors()[index], row_begin, row_count, col_begin,
                                col_count, out, bytes_read);
    }

  private:
    mutable std::mutex mutex_;
    mutable std::set<std::vector<int>> cores_;
};

TEST(LoadThreads, RunOnAllCoresOfTheRank) {
    const std::vector<int> all = AllowedCores();
    if (all.size() < 2) GTEST_SKIP() << "one core only";
    const test::TempDir dir;
    const std::string path = dir / "tiny.gguf";
    support::WriteTinyGguf(path, {.hyper = support::OddHyper()});
    auto file = model_files::OpenModel(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    auto source = std::make_unique<Watched>(*std::move(file));
    const Watched& watched = *source;
    // (The device pins the thread that opens it.)
    std::thread([&] {
        auto cluster = cluster::Cluster::Launch({}, "");
        ASSERT_TRUE(cluster.ok()) << cluster.error().message;
        Job job;
        job.model = path;
        job.device = "cpu";
        job.self_test = false;
        auto rank = Rank::Make(job, **cluster, std::move(source));
        ASSERT_TRUE(rank.ok()) << rank.error().message;
        EXPECT_EQ(AllowedCores().size(), 1u);
        const Status entered = (*rank)->Enter();
        ASSERT_TRUE(entered.ok()) << entered.error().message;
        EXPECT_EQ(AllowedCores().size(), 1u) << "steps run on one core";
        EXPECT_EQ(watched.cores(), std::set{all});
    }).join();
}

}  // namespace
}  // namespace weft::engine
