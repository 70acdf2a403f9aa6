/* SPDX-License-Identifier: Apache-2.0 */
/* Our declarations of NVTX 3 (plugin/abi/nvtx.h) against its headers. It is enough that this compiles. */
#include <nvtx3/nvToolsExt.h>
#include "plugin/abi/nvtx.h"

#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours)
#define AT(field, theirs)                                                                                              \
    SAME(offsetof(struct slr_nvtx_event, field), offsetof(nvtxEventAttributes_t, theirs));                             \
    SAME(sizeof((struct slr_nvtx_event){0}.field), sizeof((nvtxEventAttributes_t){0}.theirs))

SAME(NVTX_VERSION, 3);
SAME(sizeof(struct slr_nvtx_event), sizeof(nvtxEventAttributes_t));
SAME(sizeof(struct slr_nvtx_event), NVTX_EVENT_ATTRIB_STRUCT_SIZE);
AT(version, version);
AT(size, size);
AT(category, category);
AT(color_type, colorType);
AT(color, color);
AT(payload_type, payloadType);
AT(payload, payload);
AT(message_type, messageType);
AT(message, message);
AT(message.ascii, message.ascii);
AT(message.unicode, message.unicode);
AT(message.registered, message.registered);

SAME(SLR_NVTX_ASCII, NVTX_MESSAGE_TYPE_ASCII);
SAME(SLR_NVTX_UNICODE, NVTX_MESSAGE_TYPE_UNICODE);
SAME(SLR_NVTX_REGISTERED, NVTX_MESSAGE_TYPE_REGISTERED);
SAME(SLR_NVTX_NO_LEVEL, NVTX_NO_PUSH_POP_TRACKING);

SAME(SLR_NVTX_TABLE_CALLBACKS, NVTX_ETID_CALLBACKS);
SAME(SLR_NVTX_CORE, NVTX_CB_MODULE_CORE);
SAME(SLR_NVTX_CORE2, NVTX_CB_MODULE_CORE2);
SAME(sizeof(enum slr_nvtx_module), sizeof(NvtxCallbackModule));
SAME(sizeof(struct slr_nvtx_callbacks), sizeof(NvtxExportTableCallbacks));
SAME(offsetof(struct slr_nvtx_callbacks, size), offsetof(NvtxExportTableCallbacks, struct_size));
SAME(offsetof(struct slr_nvtx_callbacks, get_module), offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable));

SAME(SLR_NVTX_RANGE_PUSH_EX, NVTX_CBID_CORE_RangePushEx);
SAME(SLR_NVTX_RANGE_PUSH_A, NVTX_CBID_CORE_RangePushA);
SAME(SLR_NVTX_RANGE_PUSH_W, NVTX_CBID_CORE_RangePushW);
SAME(SLR_NVTX_RANGE_POP, NVTX_CBID_CORE_RangePop);
SAME(SLR_NVTX_DOMAIN_RANGE_PUSH_EX, NVTX_CBID_CORE2_DomainRangePushEx);
SAME(SLR_NVTX_DOMAIN_RANGE_POP, NVTX_CBID_CORE2_DomainRangePop);
SAME(SLR_NVTX_REGISTER_STRING_A, NVTX_CBID_CORE2_DomainRegisterStringA);
SAME(SLR_NVTX_REGISTER_STRING_W, NVTX_CBID_CORE2_DomainRegisterStringW);
SAME(SLR_NVTX_DOMAIN_CREATE_A, NVTX_CBID_CORE2_DomainCreateA);
SAME(SLR_NVTX_DOMAIN_CREATE_W, NVTX_CBID_CORE2_DomainCreateW);
