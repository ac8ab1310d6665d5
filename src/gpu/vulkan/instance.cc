#include "gpu/vulkan/instance.h"

#include <string_view>
#include <utility>

#include "base/log.h"

namespace weft::gpu {
namespace {

constexpr const char* kLayer = "VK_LAYER_KHRONOS_validation";
constexpr size_t kMostMessages = 64;  // maximum that is stored
constexpr std::string_view kWho = "Vulkan";

VKAPI_ATTR VkBool32 VKAPI_CALL OnMessage(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                         VkDebugUtilsMessageTypeFlagsEXT,
                                         const VkDebugUtilsMessengerCallbackDataEXT* data,
                                         void* messages) {
    static_cast<Messages*>(messages)->Add(data->pMessage != nullptr ? data->pMessage : "?");
    return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT MessengerInfo(Messages& messages) {
    VkDebugUtilsMessengerCreateInfoEXT info{};
    info.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
    info.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                           VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
    info.pfnUserCallback = OnMessage;
    info.pUserData = &messages;
    return info;
}

Status CheckLayer(const Calls& calls) {
    uint32_t count = 0;
    VkResult result = calls.EnumerateInstanceLayerProperties(&count, nullptr);
    std::vector<VkLayerProperties> layers(count);
    if (result == VK_SUCCESS)
        result = calls.EnumerateInstanceLayerProperties(&count, layers.data());
    if (result != VK_SUCCESS && result != VK_INCOMPLETE)
        return CallError(kWho, "vkEnumerateInstanceLayerProperties", result);
    for (uint32_t i = 0; i < count; ++i) {
        if (std::string_view(layers[i].layerName) == kLayer) return {};
    }
    return MakeError(ErrorCode::kUnsupported,
                     "Vulkan: {} is not installed, which validation needs: install "
                     "vulkan-validationlayers",
                     kLayer);
}

}  // namespace

void Messages::Add(std::string message) {
    const std::lock_guard lock(mutex_);
    if (messages_.size() < kMostMessages) messages_.push_back(std::move(message));
}

std::vector<std::string> Messages::Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
}

Result<std::unique_ptr<Instance>> Instance::Make(Loader loader, bool validate) {
    std::unique_ptr<Instance> instance(new Instance);
    instance->calls_.GetInstanceProcAddr = loader.get;
    WEFT_TRY(instance->Create(validate));
    if (instance->none_) return std::unique_ptr<Instance>();
    return instance;
}

Status Instance::Create(bool validate) {
    WEFT_TRY(FindGlobalCalls(calls_));
    uint32_t version = 0;
    VkResult result = calls_.EnumerateInstanceVersion(&version);
    if (result != VK_SUCCESS) return CallError(kWho, "vkEnumerateInstanceVersion", result);
    if (version < VK_API_VERSION_1_2) {
        return MakeError(ErrorCode::kUnsupported,
                         "Vulkan: the loader has version {}.{}; expected 1.2 or later: install a "
                         "newer libvulkan1",
                         VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    }
    if (validate) WEFT_TRY(CheckLayer(calls_));
    VkApplicationInfo application{};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.pApplicationName = "weft";
    application.apiVersion = VK_API_VERSION_1_2;
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    const char* layer = kLayer;
    const char* extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    VkDebugUtilsMessengerCreateInfoEXT messenger = MessengerInfo(messages_);
    if (validate) {
        info.enabledLayerCount = 1;
        info.ppEnabledLayerNames = &layer;
        info.enabledExtensionCount = 1;
        info.ppEnabledExtensionNames = &extension;
        info.pNext = &messenger;  // for messages while the instance is created and destroyed
    }
    result = calls_.CreateInstance(&info, nullptr, &handle_);
    if (result != VK_SUCCESS) handle_ = VK_NULL_HANDLE;
    none_ = result == VK_ERROR_INCOMPATIBLE_DRIVER;
    if (none_) return {};
    if (result != VK_SUCCESS) return CallError(kWho, "vkCreateInstance", result);
    WEFT_TRY(FindInstanceCalls(calls_, handle_));
    if (!validate || calls_.CreateDebugUtilsMessengerEXT == nullptr) return {};
    result = calls_.CreateDebugUtilsMessengerEXT(handle_, &messenger, nullptr, &messenger_);
    if (result == VK_SUCCESS) return {};
    messenger_ = VK_NULL_HANDLE;
    return CallError(kWho, "vkCreateDebugUtilsMessengerEXT", result);
}

Instance::~Instance() {
    if (messenger_ != VK_NULL_HANDLE)
        calls_.DestroyDebugUtilsMessengerEXT(handle_, messenger_, nullptr);
    if (handle_ != VK_NULL_HANDLE) {
        // FindInstanceCalls may have failed before it.
        auto destroy = reinterpret_cast<PFN_vkDestroyInstance>(
            calls_.GetInstanceProcAddr(handle_, "vkDestroyInstance"));
        if (destroy != nullptr) destroy(handle_, nullptr);
    }
    for (const std::string& message : messages_.Take())
        Log(LogLevel::kError, "Vulkan validation: {}", message);
}

Result<std::vector<VkPhysicalDevice>> Instance::Devices() const {
    for (int attempt = 0; attempt < 4; ++attempt) {  // the number may change between the calls
        uint32_t count = 0;
        VkResult result = calls_.EnumeratePhysicalDevices(handle_, &count, nullptr);
        std::vector<VkPhysicalDevice> devices(count);
        if (result == VK_SUCCESS && count > 0)
            result = calls_.EnumeratePhysicalDevices(handle_, &count, devices.data());
        if (result == VK_INCOMPLETE) continue;
        // No driver has a usable device, for example if permission for /dev/dri is missing.
        if (result == VK_ERROR_INITIALIZATION_FAILED) return std::vector<VkPhysicalDevice>();
        if (result != VK_SUCCESS) return CallError(kWho, "vkEnumeratePhysicalDevices", result);
        devices.resize(count);
        return devices;
    }
    return CallError(kWho, "vkEnumeratePhysicalDevices", VK_INCOMPLETE);
}

}  // namespace weft::gpu
