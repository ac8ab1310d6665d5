// libFuzzer target: any bytes as a DeepSpeed configuration. An accepted configuration must be
// valid.
//     build-fuzz/fuzz/ds_config_fuzz -max_total_time=60 -malloc_limit_mb=256 fuzz/corpus/ds_config
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "train/config/ds_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    using namespace weft::train;
    DsFlags flags;
    flags.ranks = 3;
    flags.hidden_size = 576;
    flags.total_steps = 100;
    const auto config =
        ParseDsConfig(std::string_view(reinterpret_cast<const char*>(bytes), size), "fuzz", flags);
    if (!config.ok()) {
        WEFT_CHECK(!config.error().message.empty());
        return 0;
    }
    WEFT_CHECK(config->micro_batch >= 1 && config->accumulation >= 1);
    WEFT_CHECK(config->train_batch == config->micro_batch * config->accumulation * 3);
    WEFT_CHECK(config->zero.stage >= 0 && config->zero.stage <= 3);
    WEFT_CHECK(config->clip >= 0);
    if (config->schedule) {
        for (const int64_t step : {0, 1, 2, 99, 1'000'000}) {
            const double rate = LearningRate(*config->schedule, step);
            WEFT_CHECK(rate >= 0 && rate <= config->schedule->rate * (1 + 1e-9));
        }
    }
    return 0;
}
