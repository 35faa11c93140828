{{- define "floe.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "floe.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "floe.labels" -}}
{{ include "floe.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "floe.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "floe.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "floe.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Every group of agents with what it does not say itself: a JSON object {"groups": […]}. */}}
{{- define "floe.groups" -}}
{{- $all := list -}}
{{- $full := include "floe.fullname" . -}}
{{- range default (list (dict)) .Values.groups -}}
{{- $name := ternary (printf "%s-%s" $full (default "" .name)) $full (hasKey . "name") -}}
{{- $own := dict "workload" $name "group" (default "all" .name) "roles" (list "all") "firstOrdinal" 0 -}}
{{- range $key := list "replicas" "zone" "resources" "nodeSelector" "tolerations" "affinity" -}}
{{- $_ := set $own $key (get $.Values $key) -}}
{{- end -}}
{{- /* What is said counts, also 0, "" and {}: sprig's merge takes those for not said. */ -}}
{{- range $key, $value := . -}}
{{- $_ := set $own $key $value -}}
{{- end -}}
{{- $all = append $all $own -}}
{{- end -}}
{{- dict "groups" $all | toJson -}}
{{- end -}}

{{/* What differs between the values and what can work: said when rendering, not when an agent starts. */}}
{{- define "floe.check" -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int (add .Values.preStopSeconds 10)) -}}
{{- fail (printf "terminationGracePeriodSeconds (%d) must be at least preStopSeconds (%d) + 10" (int .Values.terminationGracePeriodSeconds) (int .Values.preStopSeconds)) -}}
{{- end -}}
{{- $stop := mul 1000 (include "floe.stopSeconds" . | int) -}}
{{- if and (gt (int $stop) 600000) (not (hasKey (default (dict) .Values.config.shutdown) "timeout_ms")) -}}
{{- fail (printf "terminationGracePeriodSeconds (%d) must be at most preStopSeconds (%d) + 605, for an agent stops within 600 s; or set config.shutdown.timeout_ms" (int .Values.terminationGracePeriodSeconds) (int .Values.preStopSeconds)) -}}
{{- end -}}
{{- if hasKey .Values.config "listeners" -}}{{- fail "config.listeners: set kafka and listeners instead, which Services and probes follow" -}}{{- end -}}
{{- range $section := list "http" "peers" -}}
{{- if hasKey (default (dict) (get $.Values.config $section)) "port" -}}{{- fail (printf "config.%s.port: set %s.port instead, which Services and probes follow" $section $section) -}}{{- end -}}
{{- end -}}
{{- range $key := keys .Values.podLabels -}}
{{- if or (hasKey (include "floe.labels" $ | fromYaml) $key) (eq $key "floe/group") -}}{{- fail (printf "podLabels: %s is the chart's own, by which pods are found; choose another name" $key) -}}{{- end -}}
{{- end -}}
{{- $advertised := .Values.kafka.advertisedHost -}}
{{- range .Values.listeners -}}{{- $advertised = printf "%s %s %v" $advertised .advertisedHost .advertisedPort -}}{{- end -}}
{{- if and (contains "{ordinal" $advertised) (ne .Values.kind "StatefulSet") -}}
{{- fail "{ordinal} in an advertised address needs kind: StatefulSet; pods of a Deployment have no numbers" -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if regexMatch "^FLOE_(LISTENERS(__.*)?|(HTTP|PEERS)__PORT)$" .name -}}{{- fail (printf "extraEnv: instead of %s set kafka, listeners, http.port or peers.port, which Services and probes follow" .name) -}}{{- end -}}
{{- end -}}
{{- $store := default (dict) .Values.config.store -}}
{{- $endpoint := ternary $store.endpoint .Values.objectStore.endpoint (hasKey $store "endpoint") -}}
{{- $allowed := ternary $store.allow_http .Values.objectStore.allowHttp (hasKey $store "allow_http") -}}
{{- if and (hasPrefix "http://" (lower $endpoint)) (not $allowed) -}}
{{- fail (printf "objectStore.endpoint %s is without TLS: set objectStore.allowHttp=true to accept that" $endpoint) -}}
{{- end -}}
{{- $full := include "floe.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) -}}
{{- fail (printf "the release's name %s cannot be a Service's: let it begin with a letter, and have letters, digits and '-' only" .Release.Name) -}}
{{- end -}}
{{- $names := list -}}
{{- $taken := dict -}}
{{- /* Whose each Service is. */ -}}
{{- $services := dict $full "the release" (printf "%s-agents" $full) "the release" -}}
{{- $listeners := list -}}
{{- range .Values.listeners -}}
{{- if has .name $listeners -}}{{- fail (printf "listeners: %q is there twice; give each a name of its own" .name) -}}{{- end -}}
{{- $listeners = append $listeners .name -}}
{{- if .external -}}{{- include "floe.service" (list $services (printf "%s-%s" $full (include "floe.portName" .name)) (printf "listener %s" .name)) -}}{{- end -}}
{{- end -}}
{{- range (include "floe.groups" . | fromJson).groups -}}
{{- if has .group $names -}}{{- fail (printf "groups: %q is there twice" .group) -}}{{- end -}}
{{- $names = append $names .group -}}
{{- /* Its pods have the label controller-revision-hash: its name, '-' and ten characters; a label has 63. */ -}}
{{- if and (eq $.Values.kind "StatefulSet") (gt (len .workload) 52) -}}
{{- fail (printf "groups: the StatefulSet %s has a name of %d characters, and 52 are possible: shorten the release's name or the group's" .workload (len .workload)) -}}
{{- end -}}
{{- if and .zone $.Values.zoneFromTopologyLabel -}}{{- fail "zoneFromTopologyLabel: leave zone empty, for the release and for every group" -}}{{- end -}}
{{- if and (contains "{zone}" $advertised) (not .zone) (not $.Values.zoneFromTopologyLabel) -}}
{{- fail (printf "{zone} in an advertised address: group %s has none; set zone, a zone for each group, or zoneFromTopologyLabel" .group) -}}
{{- end -}}
{{- $group := . -}}
{{- range $ordinal := untilStep (int .firstOrdinal) (int (add .firstOrdinal .replicas)) 1 -}}
{{- range $.Values.listeners -}}
{{- if .external -}}{{- include "floe.service" (list $services (printf "%s-%d-%s" $group.workload $ordinal (include "floe.portName" .name)) (printf "listener %s for an agent of group %s" .name $group.group)) -}}{{- end -}}
{{- if and .external (eq .external.type "NodePort") .external.firstNodePort -}}
{{- $port := add .external.firstNodePort $ordinal | toString -}}
{{- if hasKey $taken $port -}}{{- fail (printf "listeners: node port %s would be taken twice; give groups a firstOrdinal of their own" $port) -}}{{- end -}}
{{- if gt (int $port) 65535 -}}{{- fail (printf "listeners: %s would have the node port %s: choose a lower firstNodePort, or lower firstOrdinal of groups" .name $port) -}}{{- end -}}
{{- $_ := set $taken $port true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $ports := list (int .Values.kafka.port) (int .Values.http.port) (int .Values.peers.port) -}}
{{- range .Values.listeners -}}
{{- $ports = append $ports (int .port) -}}
{{- if and .external (ne $.Values.kind "StatefulSet") -}}{{- fail (printf "listeners: %s has external, which needs kind: StatefulSet" .name) -}}{{- end -}}
{{- if and .external (eq (default (dict) .external).type "NodePort") (not .advertisedPort) -}}
{{- fail (printf "listeners: %s is a NodePort without advertisedPort, so that clients would be sent to %d: set it to the port that is open outside, such as \"{ordinal+%d}\" with firstNodePort: %d" .name (int .port) (int (default 31000 .external.firstNodePort)) (int (default 31000 .external.firstNodePort))) -}}
{{- end -}}
{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}{{- fail "kafka.port, http.port, peers.port and the ports of listeners must differ" -}}{{- end -}}
{{- end -}}

{{/* Notes a Service of a listener, (list <names so far> <its name> <for whom>): it must be possible, and no other's. */}}
{{- define "floe.service" -}}
{{- $services := index . 0 -}}
{{- $name := index . 1 -}}
{{- $whose := index . 2 -}}
{{- if hasKey $services $name -}}
{{- fail (printf "listeners: the Service %s would be there twice, for %s and for %s: rename the listener" $name (get $services $name) $whose) -}}
{{- end -}}
{{- if gt (len $name) 63 -}}
{{- fail (printf "listeners: the Service %s, for %s, has a name of %d characters, and 63 are possible: shorten the release's name, the group's or the listener's" $name $whose (len $name)) -}}
{{- end -}}
{{- $_ := set $services $name $whose -}}
{{- end -}}

{{/* Seconds that an agent has to stop, from SIGTERM on. */}}
{{- define "floe.stopSeconds" -}}
{{- sub (sub .Values.terminationGracePeriodSeconds .Values.preStopSeconds) 5 -}}
{{- end -}}

{{/* A listener's name as a port's and a Service's. */}}
{{- define "floe.portName" -}}
{{- . | lower | replace "_" "-" -}}
{{- end -}}
