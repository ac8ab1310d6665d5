// Output of --version and `weft inspect --devices` about GPUs.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "support/lavapipe.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using support::Ran;
using support::RunWeft;

// Sets an environment variable for the object's lifetime.
class Environment {
  public:
    Environment(const char* name, const std::string& value) : name_(name) {
        if (const char* before = std::getenv(name); before != nullptr) before_ = before;
        ::setenv(name, value.c_str(), 1);
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;
    ~Environment() {
        if (before_)
            ::setenv(name_, before_->c_str(), 1);
        else
            ::unsetenv(name_);
    }

  private:
    const char* name_;
    std::optional<std::string> before_;
};

TEST(Gpus, AreListed) {
    const auto found = test::FindLavapipe();
    if (!found.ok()) GTEST_SKIP() << found.error().message;
    const json listed = RunWeft({"inspect", "--devices", "--json"}).Json();
    ASSERT_GT(listed["gpus"].size(), static_cast<size_t>(*found));
    const json gpu = listed["gpus"][static_cast<size_t>(*found)];
    EXPECT_EQ(gpu["index"], *found);
    EXPECT_EQ(gpu["kind"], "cpu");
    EXPECT_EQ(gpu["unusable"], "");
    EXPECT_NE(gpu["driver"].get<std::string>().find("Mesa"), std::string::npos);
    ASSERT_GT(gpu["heaps"].size(), 0u);
    EXPECT_GT(gpu["heaps"][0]["total_bytes"], 1 << 20);
    // Its driver reports no fast integer dot products, and it has no matrix units.
    EXPECT_EQ(gpu["products"], "float32");
    EXPECT_EQ(listed["gpus_none"], "");
    EXPECT_TRUE(listed["shaders"]["count"].is_number_unsigned());

    const std::string name = gpu["name"];
    EXPECT_NE(RunWeft({"inspect", "--devices"}).out.find(name), std::string::npos);
    EXPECT_NE(RunWeft({"--version"}).out.find(name), std::string::npos);
    EXPECT_EQ(RunWeft({"--version", "--json"}).Json()["gpus"].size(), listed["gpus"].size());
}

TEST(Gpus, WithoutALoaderOneLineSaysSo) {
    const test::TempDir folder;
    ASSERT_TRUE(WriteFile(folder / "libvulkan.so.1", {}).ok());
    const Environment path("LD_LIBRARY_PATH", folder.path());
    const Ran ran = RunWeft({"--version"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    const size_t at = ran.out.find("\ngpus           none: Vulkan: ");
    const size_t built = ran.out.find("\ngpus           none: this weft was built without");
    EXPECT_TRUE(at != std::string::npos || built != std::string::npos) << ran.out;
    const json listed = RunWeft({"inspect", "--devices", "--json"}).Json();
    EXPECT_TRUE(listed["gpus"].empty());
    EXPECT_NE(listed["gpus_none"], "");
}

TEST(Gpus, WithoutADriverTheListIsEmpty) {
    const Environment none("VK_DRIVER_FILES", "/nowhere.json");
    const Environment older("VK_ICD_FILENAMES", "/nowhere.json");
    const Ran ran = RunWeft({"inspect", "--devices"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out.rfind("no gpu\n  because     ", 0), 0u) << ran.out;
    for (const std::string_view line : Split(ran.out, '\n')) EXPECT_LE(line.size(), 100u) << line;
    const bool built = ran.out.find("built without GPU kernels") == std::string::npos;
    for (const char* driver : {"Vulkan: ", "CUDA: ", "HIP: "}) {
        EXPECT_EQ(ran.out.find(driver) != std::string::npos, built) << ran.out;
    }
    // The list also names the shaders of this build, as --version does.
    const size_t shaders = ran.out.find("\nshaders: ");
    ASSERT_NE(shaders, std::string::npos) << ran.out;
    const std::string text =
        ran.out.substr(shaders + 10, ran.out.find('\n', shaders + 1) - shaders - 10);
    EXPECT_NE(RunWeft({"--version"}).out.find("\nshaders        " + text + "\n"),
              std::string::npos);
    const json listed = RunWeft({"inspect", "--devices", "--json"}).Json();
    const bool lacks = !listed["shaders"]["lacking"].empty();
    EXPECT_EQ(text.find("without those for matrix units") != std::string::npos, lacks) << text;
}

TEST(Gpus, InspectWantsAModelOrDevices) {
    const Ran ran = RunWeft({"inspect"});
    EXPECT_EQ(ran.status, 2);
    EXPECT_NE(ran.err.find("--devices"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace weft::cli
