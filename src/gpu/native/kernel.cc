// Kernels: SPIR-V is translated to C++, compiled for the device and loaded as a module.
#include "gpu/native/core.h"
#include "gpu/spirv/translate.h"

namespace weft::gpu::native {
namespace {

// Same as in shaders/guard.glsl, units.glsl and halves.glsl.
constexpr uint32_t kGuardedConstant = 30, kUnitConstants = 31, kKeepsSmallHalvesConstant = 34;
constexpr int kLocalBytesAttribute = 3;  // CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES

class KernelOfCore : public Kernel, public Compiler::Waiting {
  public:
    KernelOfCore(std::shared_ptr<Core> core, std::shared_ptr<Compiler> compiler)
        : core_(std::move(core)), compiler_(std::move(compiler)) {}
    KernelOfCore(const KernelOfCore&) = delete;
    KernelOfCore& operator=(const KernelOfCore&) = delete;
    ~KernelOfCore() override {
        compiler_->Forget(*this);
        if (module_ == nullptr || !core_->Settled()) return;
        static_cast<void>(core_->Enter());
        static_cast<void>(core_->calls.UnloadModule(module_));
    }
    uint32_t subgroup() const override { return core_->found.description.subgroup; }
    const KernelHandles& handles() const { return handles_; }
    Status Create(const KernelCode& code);
    // Thread: any.
    void Load() override {
        status_ = compiler_->CheckStop();
        if (status_.ok()) status_ = LoadFitting();
        if (!status_.ok()) handles_.function = nullptr;
    }
    Status Loaded();

  private:
    Status LoadFitting();
    // option: an additional compiler option; null: none.
    Status LoadWith(const char* option);
    std::shared_ptr<Core> core_;
    std::shared_ptr<Compiler> compiler_;
    spirv::Text text_;  // until the kernel is loaded
    Status status_;     // of the last Load
    Handle module_ = nullptr;
    KernelHandles handles_;
};

Result<spirv::Text> TextOf(const Core& core, const KernelCode& code) {
    const Description& gpu = core.found.description;
    std::vector<spirv::Specialization> constants;
    for (uint32_t i = 0; i < code.constants.size(); ++i)
        constants.push_back({i, code.constants[i]});
    if (code.guarded) constants.push_back({kGuardedConstant, 1});
    constants.push_back({kKeepsSmallHalvesConstant, 1});
    const MatrixUnit& unit = gpu.matrix_unit;
    if (gpu.cooperative_matrix) {
        constants.insert(
            constants.end(),
            {{kUnitConstants, unit.m}, {kUnitConstants + 1, unit.n}, {kUnitConstants + 2, unit.k}});
    }
    return spirv::Translate(
        {code.name, code.spirv, constants, gpu.subgroup, core.interface.language});
}

Status KernelOfCore::Create(const KernelCode& code) {
    WEFT_TRY(compiler_->Open());
    WEFT_ASSIGN(text_, TextOf(*core_, code));
    const Description& gpu = core_->found.description;
    if (text_.shared_bytes > gpu.shared_bytes || text_.local_size[0] > gpu.most_invocations) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: kernel {} needs workgroups of {} invocations and {} bytes of shared "
                         "memory; the device supports at most {} and {}",
                         core_->Who(), code.name, text_.local_size[0], text_.shared_bytes,
                         gpu.most_invocations, gpu.shared_bytes);
    }
    handles_.args_bytes = code.args_bytes;
    handles_.invocations = text_.local_size[0];
    compiler_->Wait(*this);
    return {};
}

Status KernelOfCore::Loaded() {
    if (handles_.function != nullptr) return {};
    compiler_->Forget(*this);  // unless an earlier attempt failed, it still waits
    compiler_->Wait(*this);
    compiler_->LoadAll();
    if (handles_.function != nullptr) text_ = {};
    return status_;
}

Status KernelOfCore::LoadFitting() {
    WEFT_TRY(LoadWith(nullptr));
    const Interface& interface = core_->interface;
    if (interface.roomy_option == nullptr) return {};
    int local_bytes = 0;
    WEFT_TRY(core_->Check(
        "GetFunctionAttribute",
        core_->calls.GetFunctionAttribute(&local_bytes, kLocalBytesAttribute, handles_.function)));
    if (local_bytes == 0) return {};
    return LoadWith(interface.roomy_option);
}

Status KernelOfCore::LoadWith(const char* option) {
    if (module_ != nullptr) static_cast<void>(core_->calls.UnloadModule(module_));
    module_ = nullptr;
    WEFT_ASSIGN(Compiler::Compiled compiled, compiler_->Compile(text_, option));
    WEFT_TRY(core_->Enter());
    Handle module = nullptr;
    Code loaded = core_->calls.LoadModule(&module, compiled.file.data());
    if (loaded != 0 && compiled.kept) {  // a file of another driver?
        WEFT_ASSIGN(compiled, compiler_->Compile(text_, option, true));
        loaded = core_->calls.LoadModule(&module, compiled.file.data());
    }
    WEFT_TRY(core_->Check(fmt::format("LoadModule of kernel {}", text_.entry), loaded));
    module_ = module;
    return core_->Check(fmt::format("GetFunction of kernel {}", text_.entry),
                        core_->calls.GetFunction(&handles_.function, module_, text_.entry.c_str()));
}

Status CheckCode(const Core& core, const KernelCode& code) {
    WEFT_CHECK(code.args_bytes <= kMostArgsBytes && code.args_bytes % 4 == 0);
    if (code.spirv.empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: kernel {} is not in this build: it was built without glslc, or with "
                         "a glslc that lacks a feature of the kernel",
                         core.Who(), code.name);
    }
    const uint32_t subgroup = core.found.description.subgroup;
    if (code.subgroup != 0 && code.subgroup != subgroup) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: kernel {} needs subgroups of {}; the device supports {}", core.Who(),
                         code.name, code.subgroup, subgroup);
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeKernelOn(std::shared_ptr<Core> core,
                                             std::shared_ptr<Compiler> compiler,
                                             const KernelCode& code) {
    WEFT_TRY(CheckCode(*core, code));
    auto kernel = std::make_unique<KernelOfCore>(std::move(core), std::move(compiler));
    WEFT_TRY(kernel->Create(code));
    return std::unique_ptr<Kernel>(std::move(kernel));
}

KernelHandles HandlesOf(const Kernel& kernel) {
    return static_cast<const KernelOfCore&>(kernel).handles();
}

Status LoadKernel(const Kernel& kernel) {
    // Loading changes nothing that a user of the kernel sees.
    return const_cast<KernelOfCore&>(static_cast<const KernelOfCore&>(kernel)).Loaded();
}

}  // namespace weft::gpu::native
