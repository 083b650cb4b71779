{{- define "shoal.name" -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "shoal.selector" -}}
app.kubernetes.io/name: shoal
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "shoal.labels" -}}
{{ include "shoal.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "shoal.check" -}}
{{- if and .Values.persistence.enabled (gt (int .Values.replicas) 1) }}
{{- fail "persistence.enabled needs replicas: 1, because two Shoals cannot share a state directory" }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (regexMatch "(?m)^\\s*mode\\s*=\\s*[\"'](wrap|unwrap)" .Values.config) }}
{{- fail "listeners of mode wrap and unwrap need replicas: 1, because one process must see both ends of a mirror" }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (regexMatch "(?m)^\\s*ports\\s*=\\s*[\"']" .Values.config) }}
{{- fail "with several replicas, ports of a listener must be a table { node-id = port }: from a range, each replica could give a broker another port" }}
{{- end }}
{{- end -}}
