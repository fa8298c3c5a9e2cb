/* SPDX-License-Identifier: Apache-2.0 */
/* letta_routes.h: the handlers of Letta's interface, by file. */
#ifndef BRIG_LETTA_LETTA_ROUTES_H
#define BRIG_LETTA_LETTA_ROUTES_H

#include "api/api.h"

route_fn route_config_list, route_config_one, route_config_create, route_config_local_default, route_config_e2b_default,
    route_config_local, route_config_update, route_config_delete, route_config_recreate;
route_fn route_variable_list, route_variable_create, route_variable_update, route_variable_delete;
route_fn route_tool_list, route_tool_upsert, route_tool_get, route_tool_update, route_tool_delete, route_tool_count,
    route_tool_search, route_tool_schema, route_tool_base, route_tool_source;
route_fn route_agent_list, route_agent_create, route_agent_get, route_agent_update, route_agent_delete,
    route_agent_count, route_agent_tools, route_agent_attach, route_agent_detach, route_agent_approval,
    route_agent_tool_run;

#endif
