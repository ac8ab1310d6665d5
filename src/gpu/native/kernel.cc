// Kernels: SPIR-V is translated to C++, compiled for the device and loaded as a module.
#include "gpu/native/core.h"
#include "gpu/spirv/translate.h"

namespace weft::gpu::native {
namespace {

// Same as in shaders/guard.glsl and units.glsl.
constexpr uint32_t kGuardedConstant = 30, kUnitConstants = 31;
constexpr int kLocalBytesAttribute = 3;  // CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES

class KernelOfCore : public Kernel {
  public:
    explicit KernelOfCore(std::shared_ptr<Core> core) : core_(std::move(core)) {}
    KernelOfCore(const KernelOfCore&) = delete;
    KernelOfCore& operator=(const KernelOfCore&) = delete;
    ~KernelOfCore() override {
        if (module_ == nullptr || !core_->Settled()) return;
        static_cast<void>(core_->Enter());
        static_cast<void>(core_->calls.UnloadModule(module_));
    }
    uint32_t subgroup() const override { return core_->found.description.subgroup; }
    const KernelHandles& handles() const { return handles_; }
    Status Create(Compiler& compiler, const KernelCode& code);

  private:
    // option: one more of the compiler's; null: none.
    Status Load(Compiler& compiler, const spirv::Text& text, const char* option);
    std::shared_ptr<Core> core_;
    Handle module_ = nullptr;
    KernelHandles handles_;
};

Result<spirv::Text> TextOf(const Core& core, const KernelCode& code) {
    const Description& gpu = core.found.description;
    std::vector<spirv::Specialization> constants;
    for (uint32_t i = 0; i < code.constants.size(); ++i)
        constants.push_back({i, code.constants[i]});
    if (code.guarded) constants.push_back({kGuardedConstant, 1});
    const MatrixUnit& unit = gpu.matrix_unit;
    if (gpu.cooperative_matrix) {
        constants.insert(
            constants.end(),
            {{kUnitConstants, unit.m}, {kUnitConstants + 1, unit.n}, {kUnitConstants + 2, unit.k}});
    }
    return spirv::Translate(
        {code.name, code.spirv, constants, gpu.subgroup, core.interface.language});
}

Status KernelOfCore::Create(Compiler& compiler, const KernelCode& code) {
    WEFT_ASSIGN(const spirv::Text text, TextOf(*core_, code));
    const Description& gpu = core_->found.description;
    if (text.shared_bytes > gpu.shared_bytes || text.local_size[0] > gpu.most_invocations) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: kernel {} needs workgroups of {} invocations and {} bytes of shared "
                         "memory; the device supports at most {} and {}",
                         core_->Who(), code.name, text.local_size[0], text.shared_bytes,
                         gpu.most_invocations, gpu.shared_bytes);
    }
    handles_.args_bytes = code.args_bytes;
    handles_.invocations = text.local_size[0];
    WEFT_TRY(Load(compiler, text, nullptr));
    const Interface& interface = core_->interface;
    if (interface.roomy_option == nullptr) return {};
    int local_bytes = 0;
    WEFT_TRY(core_->Check(
        "GetFunctionAttribute",
        core_->calls.GetFunctionAttribute(&local_bytes, kLocalBytesAttribute, handles_.function)));
    if (local_bytes == 0) return {};
    static_cast<void>(core_->calls.UnloadModule(module_));
    return Load(compiler, text, interface.roomy_option);
}

Status KernelOfCore::Load(Compiler& compiler, const spirv::Text& text, const char* option) {
    module_ = nullptr;
    WEFT_ASSIGN(Compiler::Compiled compiled, compiler.Compile(text, option));
    WEFT_TRY(core_->Enter());
    Handle module = nullptr;
    Code loaded = core_->calls.LoadModule(&module, compiled.file.data());
    if (loaded != 0 && compiled.kept) {  // a file of another driver?
        WEFT_ASSIGN(compiled, compiler.Compile(text, option, true));
        loaded = core_->calls.LoadModule(&module, compiled.file.data());
    }
    WEFT_TRY(core_->Check(fmt::format("LoadModule of kernel {}", text.entry), loaded));
    module_ = module;
    return core_->Check(fmt::format("GetFunction of kernel {}", text.entry),
                        core_->calls.GetFunction(&handles_.function, module_, text.entry.c_str()));
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

Result<std::unique_ptr<Kernel>> MakeKernelOn(std::shared_ptr<Core> core, Compiler& compiler,
                                             const KernelCode& code) {
    WEFT_TRY(CheckCode(*core, code));
    auto kernel = std::make_unique<KernelOfCore>(std::move(core));
    WEFT_TRY(kernel->Create(compiler, code));
    return std::unique_ptr<Kernel>(std::move(kernel));
}

KernelHandles HandlesOf(const Kernel& kernel) {
    return static_cast<const KernelOfCore&>(kernel).handles();
}

}  // namespace weft::gpu::native
