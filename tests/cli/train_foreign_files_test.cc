// weft train removes only files that it wrote, and nothing behind a link.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/process.h"
#include "support/run_weft.h"
#include "support/train_case.h"

namespace weft::support {
namespace {

namespace fs = std::filesystem;

class TrainForeignFiles : public TrainCase {
  protected:
    Words Command(const Words& more, const std::string& steps) const {
        return Words{"train",   model_, "--data",  data_, "--seq-len",    "96", "--json", "-t", "1",
                     "--dtype", "f32",  "--steps", steps, "--output-dir", out_} +
               more;
    }
    std::string Step(int64_t step) const {
        return out_ + "/checkpoints/step-0000000" + std::to_string(step);
    }
};

// A folder with the name of a checkpoint folder that Weft did not write is refused before the job
// trains, with each flag; also one that is reached by a link.
TEST_F(TrainForeignFiles, AFolderOfOthersIsNotTakenForACheckpoint) {
    const std::string other = dir_ / "other";
    fs::create_directories(other);
    Put(other + "/data.txt", "kept");
    Put(other + "/manifest.json", "{\"name\": \"a page\"}");
    for (const bool link : {false, true}) {
        fs::remove_all(out_);
        fs::create_directories(out_ + "/checkpoints");
        link ? fs::create_directory_symlink(other, Step(2)) : fs::copy(other, Step(2));
        for (const Words& more : {Words{}, Words{"--resume", "auto"}, Words{"--overwrite"}}) {
            const Ran ran = RunWeft(Command(Words{"--save-every", "1"} + more, "3"));
            EXPECT_EQ(ran.status, 2) << ran.err;
            EXPECT_NE(ran.err.find("step-00000002 has the name of a checkpoint's folder"),
                      std::string::npos)
                << ran.err;
            EXPECT_EQ(ran.out.find("\"step\""), std::string::npos);
            EXPECT_EQ(Slurp(Step(2) + "/data.txt"), "kept");
            EXPECT_TRUE(fs::exists(Step(2) + "/manifest.json"));
        }
        EXPECT_EQ(fs::is_symlink(Step(2)), link);
    }
}

// Pruning, --overwrite and a new save of a step remove what Weft wrote, and no link's target.
TEST_F(TrainForeignFiles, FilesOfOthersBesideCheckpointsStay) {
    const std::string notes = "/checkpoints/notes/plan.txt", archive = dir_ / "archive";
    const Words saves = {"--save-every", "1", "--keep-last", "1", "--save-format", "hf"};
    ASSERT_EQ(RunWeft(Command(saves, "1")).status, 0);
    fs::rename(Step(1), archive);
    fs::create_directory_symlink(archive, Step(1));
    fs::create_directories(out_ + "/checkpoints/notes");
    Put(out_ + notes, "kept");
    Put(out_ + "/model/notes.txt", "kept");
    ASSERT_EQ(RunWeft(Command(saves + Words{"--resume", "auto"}, "2")).status, 0);
    EXPECT_FALSE(fs::is_symlink(Step(1)));  // pruned
    EXPECT_TRUE(fs::exists(archive + "/manifest.json"));
    Put(Step(2) + "/notes.txt", "kept");
    ASSERT_EQ(RunWeft(Command(saves + Words{"--resume", "auto"}, "3")).status, 0);
    EXPECT_EQ(Slurp(Step(2) + "/notes.txt"), "kept");
    EXPECT_FALSE(fs::exists(Step(2) + "/manifest.json"));
    fs::remove_all(Step(2));
    fs::create_directory_symlink(archive, Step(1));
    const std::string before = Slurp(archive + "/manifest.json");
    const Ran anew = RunWeft(Command({"--overwrite", "--save-every", "1"}, "2"));
    ASSERT_EQ(anew.status, 0) << anew.err;
    EXPECT_EQ(Slurp(archive + "/manifest.json"), before);
    EXPECT_FALSE(fs::exists(Step(3)));
    EXPECT_EQ(Slurp(out_ + notes), "kept");
    EXPECT_EQ(Slurp(out_ + "/model/notes.txt"), "kept");
    EXPECT_FALSE(fs::exists(out_ + "/model/config.json"));
}

}  // namespace
}  // namespace weft::support
